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
from mutations import DETAILS, RECORD, WEIGHTS, Attention, Files, disturb, forge, mutated
from networks import Chain, images, make, settled
from safetensors.torch import load_file, save_file
from torch import nn

import ldrf
from ldrf.cli import main
from ldrf.errors import LdrfError
from ldrf.files.record import sealed
from ldrf.inputs import made_up_inputs
from ldrf.report import write_report

COUNT = int(os.environ.get("LDRF_MUTATE", "300"))
SECONDS = 5  # of work that a folder may take; one takes a few milliseconds
WAITING = 60  # seconds on the clock after which it hangs
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
    """Raise in the midst of what works longer than ``SECONDS``, or waits longer than ``WAITING``."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end after {SECONDS} s of work or {WAITING} s of waiting")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, WAITING)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


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


@pytest.mark.slow
def test_mutated_folders_are_refused_or_right(saved, tmp_path, monkeypatch, capsys):
    (tmp_path / "nets.py").write_text(NETS.format(tests=str(Path(__file__).parents[1])))
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
            start = time.process_time()
            seen[outcome_of_loading(folder, base, forged)] += 1
            slowest = max(slowest, time.process_time() - start)
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


# One by one


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return write(tmp_path / "slim", saved[0].files)


def forged_weights(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Other tensors in the folder, checksum and seal made right again."""
    save_file(tensors, folder / WEIGHTS)
    files = {name: (folder / name).read_bytes() for name in (RECORD, WEIGHTS)}
    assert forge(files)
    (folder / RECORD).write_bytes(files[RECORD])


def refused(folder: Path, words: str, model: nn.Module | None = None) -> None:
    with in_time(), pytest.raises(LdrfError, match=words) as caught:
        ldrf.load(folder, model or make(Chain))
    told(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, odd):
    tensors = load_file(folder / WEIGHTS)
    tensors["conv1.weight"][0, 0, 0, 0] = odd
    forged_weights(folder, tensors)
    refused(folder, "the numbers of tensor 'conv1.weight' must be finite")


def test_layers_that_do_not_fit_one_another_are_refused(folder):
    tensors = load_file(folder / WEIGHTS)
    for name in [n for n in tensors if n.startswith(("conv1.", "bn1.")) and tensors[n].ndim]:
        tensors[name] = tensors[name][:-1].clone()
    forged_weights(folder, tensors)
    refused(folder, "its tensors do not fit one another")


@pytest.mark.parametrize("shape", [(0, 3, 3, 3), (6, 3, 3), (13, 3, 3, 3), (6, 3, 3, 3, 1)])
def test_tensors_of_other_shapes_are_refused(folder, shape):
    forged_weights(folder, {**load_file(folder / WEIGHTS), "conv1.weight": torch.zeros(shape)})
    refused(folder, "tensor 'conv1.weight' must be no larger than")


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_tensors_of_another_kind_are_refused(folder, dtype):
    tensors = load_file(folder / WEIGHTS)
    forged_weights(folder, {**tensors, "conv1.weight": tensors["conv1.weight"].to(dtype)})
    refused(folder, "tensor 'conv1.weight' must be of torch.float32")


def test_a_file_larger_than_the_dense_model_is_not_even_read(folder):
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(2**40)
    refused(folder, "is larger than the dense Chain")


@pytest.mark.parametrize("name", ["../conv1.weight", "/etc/passwd", "__class__", "conv1", ""])
def test_names_of_tensors_are_looked_up_and_nothing_else(folder, name):
    tensors = load_file(folder / WEIGHTS)
    forged_weights(folder, {**tensors, name: torch.zeros(1)})
    refused(folder, "it has no tensor")


@pytest.mark.parametrize("name", ["forward", "training", "__class__", "conv1.weight", "conv1.__dict__", "../heads", ""])
def test_only_numbers_that_a_module_has_are_set(folder, name):
    record = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps(sealed({**record, "attributes": {name: 1}})))
    refused(folder, f"it has no number '{name}' of 1 or more")


def test_a_changed_number_of_heads_is_noticed(saved, tmp_path):
    """The tensors alone do not tell: four heads of two or two of four have the same shapes."""
    files = dict(saved[1].files)
    assert b'"heads": 2' in files[RECORD]
    files[RECORD] = files[RECORD].replace(b'"heads": 2', b'"heads": 1')
    refused(write(tmp_path / "slim", files), "do not match its seal", saved[1].fresh())


@pytest.mark.parametrize("inputs", [[10**9] * 3, [2**40], [0]])
def test_inputs_that_no_memory_holds_are_not_made(folder, inputs, monkeypatch, capsys):
    record = json.loads((folder / RECORD).read_text())
    described = {"args": [{"shape": inputs, "dtype": "float32"}], "kwargs": {}}
    record = sealed({**record, "inputs": described, "source": {"model": "resnet20"}})
    (folder / RECORD).write_text(json.dumps(record))
    assert same(ldrf.load(folder, make(Chain, 3)), ldrf.load(folder, make(Chain)))
    if inputs != [0]:
        with pytest.raises(LdrfError, match="can't be made up: name some data"):
            made_up_inputs(described, 2)


@pytest.mark.parametrize("dtype", ["load", "nn", "_C", "__name__", "", "float99"])
def test_dtypes_are_dtypes(dtype):
    with pytest.raises(LdrfError, match="can't be made up"):
        made_up_inputs({"args": [{"shape": [2], "dtype": dtype}], "kwargs": {}}, 1)


def test_a_linked_weights_file_is_read_and_still_checked(folder, tmp_path):
    (folder / WEIGHTS).rename(tmp_path / "elsewhere")
    (folder / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    assert ldrf.load(folder, make(Chain)).conv1.out_channels == 6  # pyright: ignore[reportAttributeAccessIssue]
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("/etc/passwd")
    refused(folder, "is damaged|is larger")


def test_a_report_replaces_a_link_and_does_not_follow_it(folder, tmp_path):
    (tmp_path / "mine.html").write_text("mine")
    (folder / "report.html").symlink_to(tmp_path / "mine.html")
    write_report([folder])
    assert (tmp_path / "mine.html").read_text() == "mine" and not (folder / "report.html").is_symlink()


@pytest.mark.parametrize("source", ["../nets.py:net", "/tmp/nets.py:net", "~/nets.py:net", "nets.py:net"])
def test_a_folder_never_decides_which_file_is_run(folder, tmp_path, monkeypatch, capsys, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text("from pathlib import Path\nPath('was run').touch()\ndef net(): ...")
    record = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps(sealed({**record, "source": {"model": source, "weights": None}})))
    for argv in (["inspect"], ["evaluate", "--data", "sample"], ["bench"], ["export"], ["report"]):
        code = main([argv[0], str(folder), *argv[1:]])
        printed = capsys.readouterr().err
        assert argv == ["report"] or (code == 1 and "add --architecture" in printed)
    assert not (tmp_path / "was run").exists()


def test_an_endless_word_is_not_repeated_in_the_error(saved, tmp_path):
    record = json.loads(saved[0].files[RECORD])
    record["metrics"]["macs"] = {"dense": "a" * 5000, "slim": 1}
    folder = write(tmp_path / "long", {**saved[0].files, RECORD: json.dumps(sealed(record)).encode()})
    with pytest.raises(LdrfError, match="its record is not as ldrf writes it") as caught:
        write_report([folder], tmp_path / "page.html")
    told(caught.value)
