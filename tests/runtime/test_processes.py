"""Two and three processes do what one does: the same slim model, the same tuned model, written and told once."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import process_jobs
import pytest
import torch
import torch.multiprocessing as mp
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]

import ldrf
from ldrf import cli
from ldrf.cli import launch
from ldrf.cli.torchrun import GIVEN
from ldrf.runtime import processes
from ldrf.runtime.device import CPU


def start(job: Callable[..., None], count: int, *given: Any) -> None:
    """Run ``job(rank, count, *given)`` in so many processes, forked by one that has torch in its memory already."""
    multiprocessing.set_forkserver_preload(["process_jobs", "traced_before"])
    path = os.pathsep.join([str(Path(process_jobs.__file__).parent), *sys.path])  # where the server looks for these
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        mp.start_processes(job, (count, *given), nprocs=count, start_method="forkserver")  # pyright: ignore


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, Any]:
    """What a single process makes of all jobs."""
    folder = tmp_path_factory.mktemp("alone")
    return {name: job(folder) for name, job in process_jobs.JOBS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_processes_do_together_what_one_does_alone(tmp_path, alone, count):
    """One start of the processes, which is what takes the time, for all that is compared."""
    start(process_jobs.work, count, str(tmp_path))
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(count)]
    for name, check in CHECKS.items():
        check([mine[name] for mine in found], alone[name], tmp_path)


def assert_same_answers(mine: dict[str, Any], wanted: dict[str, Any]) -> None:
    gap = (mine["outputs"] - wanted["outputs"]).abs().max() / wanted["outputs"].abs().max()
    assert gap < 1e-4


def pruned_as_one(found: list[dict[str, Any]], wanted: dict[str, Any], folder: Path) -> None:
    """The same widths and answers, images divided evenly, and one voice."""
    for mine in found:
        for way in mine["results"]:
            assert mine["results"][way]["widths"] == wanted["results"][way]["widths"]
            assert mine["results"][way]["images"] == 37
            assert_same_answers(mine["results"][way], wanted["results"][way])
    shares = [mine["rows"] for mine in found]
    assert [sum(rows) for rows in zip(*shares, strict=True)] == wanted["rows"] == [8, 2, 8, 2, 8, 2, 7]
    assert max(map(sum, shares)) - min(map(sum, shares)) <= 2
    assert any(0 in rows for rows in shares) == (len(found) == 3)
    assert found[0]["told"] == wanted["told"] and not any(mine["told"] for mine in found[1:])
    assert [path.name for path in folder.glob("saved-by-*")] == ["saved-by-0"]
    assert ldrf.load(folder / "saved-by-0", process_jobs.factory()) is not None


def tuned_as_one(found: list[dict[str, Any]], wanted: dict[str, Any], folder: Path) -> None:
    for mine in found:
        assert mine["losses"] == pytest.approx(wanted["losses"], rel=1e-4)
        assert mine["ended"] == wanted["ended"] and mine["images"] == wanted["images"] == (30, 7)
        torch.testing.assert_close(mine["running_var"], wanted["running_var"], rtol=1e-4, atol=1e-6)
        assert_same_answers(mine, wanted)
    assert [path.name for path in folder.glob("state-*")] == [f"state-{len(found)}.pt"]


def normed_as_one(found: list[dict[str, Any]], wanted: dict[str, Any], folder: Path) -> None:
    """The oracle is torch's own BatchNorm on the whole batch."""
    for mine in found:
        rows = slice(*mine["place"])
        torch.testing.assert_close(mine["y"], wanted["y"][rows])
        torch.testing.assert_close(mine["slope"], wanted["slope"][rows], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine["parameters"], wanted["parameters"], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine["state"], wanted["state"])


def in_agreement(found: list[dict[str, Any]], wanted: dict[str, Any], folder: Path) -> None:
    count = len(found)
    for mine in found:
        assert mine["sum"] == [count, sum(range(count))] and mine["agreed"] == "by 0"
        assert mine["all"]["both"].tolist() == [count] * 2 and mine["all"]["mine"].tolist() == [1] * 3
    assert [path.name for path in folder.glob("called-by-*")] == [f"called-by-0-of-{count}"]


def read_once(found: list[dict[str, Any]], wanted: dict[str, Any], folder: Path) -> None:
    """No process reads rows of another, but all read a batch of fewer rows than processes."""
    read = [row for mine in found for rows in mine["trained"][:2] for row in rows]
    assert sorted(read) == list(range(8))  # of the whole batches
    for batch in range(3):
        assert sum(mine["shares"][batch][2] for mine in found) == pytest.approx(1)
    assert sum(mine["judged"] for mine in found) == 3
    last = [mine["trained"][2] for mine in found]
    assert last == ([[8, 9]] * 3 if len(found) == 3 else [[8], [9]])


CHECKS = {
    "prune": pruned_as_one,
    "finetune": tuned_as_one,
    "norms": normed_as_one,
    "agreement": in_agreement,
    "reading": read_once,
}


def test_alone_everything_is_the_identity():
    x = torch.ones(2, requires_grad=True)
    assert (processes.rank(), processes.count(), processes.is_first()) == (0, 1, True)
    assert processes.share(5) == (0, 5) and processes.turns([1, 2]) == [1, 2] and processes.gather(3) == [3]
    assert processes.sum_over(x) is x and processes.summed(x) is x and processes.summed_gradients(x)[0] is x
    assert processes.agreed(x) is x and processes.from_first(lambda: x) is x and processes.joined({1: 2}) == {1: 2}
    assert processes.no_loss([x, x]).item() == 0


def test_a_lost_process_is_one_sentence():
    def gone() -> None:
        raise RuntimeError("[gloo/transport] Connection closed by peer\nmore")

    with pytest.raises(ldrf.LdrfError, match=r"lost the others, as one of them ended .* closed by peer$"):
        processes.together(gone)


def torchrun(*arguments: Any, module: str = "ldrf") -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", module]
    return subprocess.run([*start, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def prune_command(factory: str, out: Path) -> list[Any]:
    here = Path(process_jobs.__file__)
    steps = ["--steps", 4, "--joint-steps", 4]
    return ["prune", f"{here}:{factory}", "--data", f"{here}:data", "--out", out, "--speedup", 1.5, *steps]


def printed_by_two(folder: Path, *argv: Any) -> str:
    """What a command prints in two processes that have what torchrun gives them."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    start(process_jobs.command, 2, str(folder), port, [str(part) for part in argv])
    assert not (folder / "printed-by-1").read_text(), "one voice"
    return (folder / "printed-by-0").read_text()


@pytest.mark.slow
def test_two_processes_prune_and_tune_with_one_voice(tmp_path):
    slim, tuned = tmp_path / "results" / "slim", tmp_path / "results" / "tuned"
    told = json.loads(printed_by_two(tmp_path / "1", *prune_command("factory", slim), "--chunk", 8, "--json"))
    assert told["images"] == 37 and told["metrics"]["accuracy"]["images"] == 12
    assert sorted(p.name for p in slim.parent.iterdir()) == ["slim"]
    assert sorted(p.name for p in slim.iterdir()) == ["ldrf.json", "model.safetensors", "report.html", "report.json"]
    here = process_jobs.__file__
    tune = ["finetune", slim, "--data", f"{here}:data", "--out", tuned, "--epochs", 1, "--batch", 8]
    text = printed_by_two(tmp_path / "2", *tune, "--architecture", f"{here}:factory")
    assert text.count("Saved in") == 1
    assert sorted(p.name for p in slim.parent.iterdir()) == ["slim", "tuned"]


@pytest.mark.slow
def test_a_killed_process_takes_the_others_down_with_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("LDRF_TEST_DIED", str(tmp_path / "died"))
    done = torchrun(*prune_command("dying_factory", tmp_path / "slim"))
    assert done.returncode != 0 and not done.stdout
    own = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(own) == 1, done.stderr
    assert "lost the others" in own[0] or "another of its processes died" in own[0]
    assert not (tmp_path / "slim" / "ldrf.json").exists()
    assert time.time() - float((tmp_path / "died").read_text()) < 60


@pytest.mark.parametrize("rank", ["0", "1"])
def test_other_commands_are_refused_by_the_first_alone(monkeypatch, capsys, rank):
    for name, value in zip(GIVEN, (rank, "2", "localhost", "1"), strict=True):
        monkeypatch.setenv(name, value)
    assert cli.main(["inspect", "vgg9", "--data", "sample"]) == 2
    told = capsys.readouterr()
    assert not told.out and told.err == (
        "error: Only prune and finetune work in several processes: start this command without torchrun.\n"
        if rank == "0"
        else ""
    )
    assert cli.main(["prune", "--no-such-flag"]) == 2
    assert bool(capsys.readouterr().err) == (rank == "0")


def test_a_process_without_signs_of_life_is_missed():
    store, lost = HashStore(), []
    ends = [launch.watch(store, rank, 3, lost.append, patience=1.0) for rank in (0, 1)]  # the third never comes
    time.sleep(0.5)
    assert not lost
    deadline = time.monotonic() + 20
    while len(lost) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert lost == ["Process 2 of 3 gave no sign of life for 1 s."] * 2
    for end in ends:
        end()


def test_a_process_that_is_done_is_not_missed():
    store, lost = HashStore(), []
    ends = [launch.watch(store, rank, 2, lost.append, patience=0.6) for rank in (0, 1)]
    ends[1]()
    time.sleep(1.2)
    assert not lost
    ends[0]()


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path, alone):
    start(process_jobs.resume, 2, str(tmp_path), True)
    assert len(list((tmp_path / "run" / "ldrf-journal").glob("unit-*"))) == 1
    start(process_jobs.resume, 3, str(tmp_path), False)
    for rank in range(3):
        assert_same_answers({"outputs": torch.load(tmp_path / f"3-{rank}.pt")}, alone["prune"]["results"]["ldrf"])
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["ldrf.json", "model.safetensors", "report.json"]


def test_sums_take_the_way_that_the_backend_has_for_a_device(monkeypatch):
    gpu = torch.device("cuda", 1)
    monkeypatch.setattr("ldrf.runtime.processes.accelerator", lambda: gpu)
    for backends, device, wanted in (
        ("cpu:gloo,cuda:nccl", gpu, gpu),
        ("cpu:gloo,cuda:nccl", CPU, CPU),
        ("cpu:gloo,cuda:gloo", gpu, CPU),
        ("cpu:gloo", torch.device("mps"), CPU),
        ("cuda:nccl", CPU, gpu),
    ):
        monkeypatch.setattr("torch.distributed.get_backend_config", lambda backends=backends: backends)
        assert processes._carrier(device) == wanted
