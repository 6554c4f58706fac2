"""Files that lie: whatever a result folder holds, it is refused in one sentence, or it is the very model once saved.

``LDRF_MUTATE=10000 pytest tests/test_hostile.py -k mutated -s`` tries that many folders and prints what became of them.
"""

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from mutations import DETAILS, RECORD, WEIGHTS, Attention, Files, disturb, mutated
from networks import Chain, images, make, settled
from safetensors.torch import load_file
from torch import nn

import ldrf
from ldrf.cli import main
from ldrf.errors import LdrfError
from ldrf.report import write_report

COUNT = int(os.environ.get("LDRF_MUTATE", "300"))
SECONDS = 5  # a folder may take so long; one takes a few milliseconds
NETS = """
import sys
sys.path.insert(0, {tests!r})
import torch
from mutations import Attention
from networks import Chain, images, make, settled

def chain():
    return make(Chain, 3)

def attention():
    return settled(Attention(), 3)

def data(split):
    yield images(8), torch.zeros(8, dtype=torch.long)
"""


@dataclass(frozen=True)
class Saved:
    """A result as it was saved, and what the right model gives."""

    name: str
    files: Files
    model: nn.Module

    def fresh(self) -> nn.Module:
        return make(Chain, 3) if self.name == "chain" else settled(Attention(), 3)


@pytest.fixture(scope="module")
def saved(pruned, tmp_path_factory) -> list[Saved]:
    place = tmp_path_factory.mktemp("saved")
    config = ldrf.PruneConfig(solver="closed-form", energy=0.2)
    counting = ldrf.prune(settled(Attention()), [images(32)], widths={"qkv": 2}, config=config)
    assert counting.attributes == {"heads": 2, "inner": 8}
    found = []
    for name, result in (("chain", pruned(Chain)), ("attention", counting)):
        folder = ldrf.save(result, place / name)
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        found.append(Saved(name, files, result.model))
    return found


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Raise in the midst of what takes longer than ``SECONDS``."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write(folder: Path, files: Files) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def told(problem: LdrfError) -> None:
    assert str(problem) and "\n" not in str(problem) and len(str(problem)) < 1000, str(problem)


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two models have the same bits and, with the numbers of their modules, compute the same."""
    first, second = one.state_dict(), other.state_dict()
    alike = list(first) == list(second) and all(torch.equal(first[n], second[n]) for n in first)
    return alike and torch.equal(one(images(2)), other(images(2)))


def outcome_of_loading(folder: Path, base: Saved, forged: bool) -> str:
    try:
        with in_time():
            model = ldrf.load(folder, base.fresh())
    except LdrfError as problem:
        told(problem)
        return "refused"
    if not forged:
        assert same(model, base.model), "a wrong model was loaded"
        return "the right model"
    stored = load_file(folder / WEIGHTS)
    state = model.state_dict()
    assert all(torch.equal(state[name], stored[name].to(state[name].dtype)) for name in stored)
    model(images(2))
    return "the forger's own model"


def outcome_of_report(folder: Path, out: Path) -> str:
    try:
        with in_time():
            page = write_report([folder], out)
    except LdrfError as problem:
        told(problem)
        return "no report"
    assert page.read_text().count("<script>") == 1 and page.stat().st_size < 2_000_000
    return "a report"


def outcome_of_command(folder: Path, base: Saved, command: str, capsys) -> str:
    argv = [command, str(folder), "--architecture", f"nets.py:{base.name}", "--data", "nets.py:data", "--json"]
    with in_time():
        code = main(argv)
    printed = capsys.readouterr()
    assert (code == 0 and json.loads(printed.out)) or (code == 1 and printed.err.startswith("error: ")), printed
    return f"{command} {'done' if code == 0 else 'refused'}"


def test_mutated_folders_are_refused_or_right(saved, tmp_path, monkeypatch, capsys):
    (tmp_path / "nets.py").write_text(NETS.format(tests=str(Path(__file__).parent)))
    monkeypatch.chdir(tmp_path)
    by_files = {id(s.files): s for s in saved}
    seen: Counter[str] = Counter()
    slowest = 0.0
    for case in range(COUNT):
        rng = random.Random(case)
        files_of, files, forged = mutated(rng, [s.files for s in saved])
        base, folder = by_files[id(files_of)], write(tmp_path / f"case{case}", files)
        if case % 25 == 0:
            disturb(rng, folder, rng.choice([RECORD, WEIGHTS, DETAILS]))
        try:
            start = time.perf_counter()
            seen[outcome_of_loading(folder, base, forged)] += 1
            slowest = max(slowest, time.perf_counter() - start)
            if case % 5 == 0:
                seen[outcome_of_report(folder, tmp_path / "page.html")] += 1
            if case % 100 == 50:
                seen[outcome_of_command(folder, base, rng.choice(["evaluate", "inspect"]), capsys)] += 1
        except BaseException as problem:
            raise AssertionError(f"case {case}: {problem!r}") from problem
        remove(folder)
    with capsys.disabled():
        if "LDRF_MUTATE" in os.environ:
            print(f"\n{COUNT} folders, slowest load {slowest:.2f} s:", *(f"{n} {what};" for what, n in seen.items()))
    assert seen["refused"] > COUNT / 2 and seen["the right model"] > 0


def remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()
