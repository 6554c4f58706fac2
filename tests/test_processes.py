"""Two and three processes do what one does: the same slim model, the same tuned model, written and told once."""

import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import process_jobs
import pytest
import torch
import torch.multiprocessing as mp
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]

import ldrf
from ldrf import cli, processes
from ldrf.cli import launch


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """``found(job, count)``: what the processes hand back, by rank; and where they worked."""

    @cache
    def started(count: int) -> tuple[Path, list[dict[str, Any]]]:
        folder = tmp_path_factory.mktemp(f"processes-{count}")
        mp.spawn(process_jobs.work, (count, str(folder)), nprocs=count)  # pyright: ignore
        return folder, [torch.load(folder / f"{rank}.pt") for rank in range(count)]

    def look(job: str, count: int) -> tuple[Path, list[dict[str, Any]]]:
        folder, all_found = started(count)
        return folder, [one[job] for one in all_found]

    return look


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """``alone(job)``: what a single process makes of it."""
    return cache(lambda job: process_jobs.JOBS[job](tmp_path_factory.mktemp("alone")))


def assert_same_answers(mine: dict[str, Any], wanted: dict[str, Any]) -> None:
    gap = (mine["outputs"] - wanted["outputs"]).abs().max() / wanted["outputs"].abs().max()
    assert gap < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("way", "count"), [("ldrf", 2), ("ldrf", 3), ("mask", 3), ("molchanov2017", 3), ("thinet", 3)])
def test_pruning_gives_the_slim_model_of_one_process(found, alone, way, count):
    for mine in found("prune", count)[1]:
        assert mine[way]["widths"] == alone("prune")[way]["widths"] and mine[way]["images"] == 37
        assert_same_answers(mine[way], alone("prune")[way])


@pytest.mark.slow
def test_every_chunk_is_divided_and_short_ones_go_round(found, alone):
    shares = [mine["rows"] for mine in found("prune", 3)[1]]
    assert [sum(rows) for rows in zip(*shares, strict=True)] == alone("prune")["rows"] == [8, 2, 8, 2, 8, 2, 7]
    assert max(map(sum, shares)) - min(map(sum, shares)) <= 2 and any(0 in rows for rows in shares)


@pytest.mark.slow
def test_only_the_first_process_tells_and_writes(found, alone):
    folder, (first, *others) = found("prune", 3)
    assert first["told"] == alone("prune")["told"] and not any(other["told"] for other in others)
    assert [path.name for path in folder.glob("saved-by-*")] == ["saved-by-0"]
    assert ldrf.load(folder / "saved-by-0", process_jobs.factory()) is not None


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_fine_tuning_gives_the_model_of_one_process(found, alone, count):
    wanted = alone("finetune")
    folder, all_found = found("finetune", count)
    for mine in all_found:
        assert mine["losses"] == pytest.approx(wanted["losses"], rel=1e-4)
        assert mine["ended"] == wanted["ended"] and mine["images"] == wanted["images"] == (30, 7)
        torch.testing.assert_close(mine["running_var"], wanted["running_var"], rtol=1e-4, atol=1e-6)
        assert_same_answers(mine, wanted)
    assert [path.name for path in folder.glob("state-*")] == [f"state-{count}.pt"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_a_shared_norm_is_torchs_own_on_the_whole_batch(found, alone, count):
    wanted = alone("norms")
    for mine in found("norms", count)[1]:
        rows = slice(*mine["place"])
        torch.testing.assert_close(mine["y"], wanted["y"][rows])
        torch.testing.assert_close(mine["slope"], wanted["slope"][rows], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine["parameters"], wanted["parameters"], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine["state"], wanted["state"])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_processes_add_up_and_agree(found, count):
    folder, all_found = found("agreement", count)
    for mine in all_found:
        assert mine["sum"] == [count, sum(range(count))] and mine["agreed"] == "by 0"
        assert mine["all"]["both"].tolist() == [count] * 2 and mine["all"]["mine"].tolist() == [1] * 3
    assert [path.name for path in folder.glob("called-by-*")] == [f"called-by-0-of-{count}"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_no_process_reads_rows_of_another(found, count):
    _, all_found = found("reading", count)
    read = [row for mine in all_found for rows in mine["trained"][:2] for row in rows]
    assert sorted(read) == list(range(8))  # of the whole batches
    for batch in range(3):
        assert sum(mine["shares"][batch][2] for mine in all_found) == pytest.approx(1)
    assert sum(mine["judged"] for mine in all_found) == 3
    last = [mine["trained"][2] for mine in all_found]
    assert last == ([[8, 9]] * 3 if count == 3 else [[8], [9]])  # fewer rows than processes: all do the whole


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
    return ["prune", f"{here}:{factory}", "--data", f"{here}:data", "--out", out, "--speedup", 1.5, "--steps", 4]


@pytest.mark.slow
def test_torchrun_prunes_and_tunes_with_one_voice(tmp_path):
    done = torchrun(*prune_command("factory", tmp_path / "slim"), "--chunk", 8, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)  # one object, not two
    assert told["images"] == 37 and told["metrics"]["accuracy"]["images"] == 12
    assert sorted(p.name for p in tmp_path.iterdir()) == ["slim"]
    assert sorted(p.name for p in (tmp_path / "slim").iterdir()) == [
        "ldrf.json",
        "model.safetensors",
        "report.html",
        "report.json",
    ]
    data = f"{process_jobs.__file__}:data"
    tune = ["finetune", tmp_path / "slim", "--data", data, "--out", tmp_path / "tuned", "--epochs", 1, "--batch", 8]
    done = torchrun(*tune, "--architecture", f"{process_jobs.__file__}:factory")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Saved in") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["slim", "tuned"]


@pytest.mark.slow
def test_a_killed_process_takes_the_others_down_with_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("LDRF_TEST_DIED", str(tmp_path / "died"))
    done = torchrun(*prune_command("dying_factory", tmp_path / "slim"))
    assert done.returncode != 0 and not done.stdout
    own = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(own) == 1 and ("lost the others" in own[0] or "another of its processes died" in own[0])
    assert not (tmp_path / "slim").exists()
    assert time.time() - float((tmp_path / "died").read_text()) < 60


@pytest.mark.parametrize("rank", ["0", "1"])
def test_other_commands_are_refused_by_the_first_alone(monkeypatch, capsys, rank):
    for name, value in zip(launch.GIVEN, (rank, "2", "localhost", "1"), strict=True):
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
    mp.spawn(process_jobs.resume, (2, str(tmp_path), True), nprocs=2)  # pyright: ignore
    assert len(list((tmp_path / "run" / "ldrf-journal").glob("unit-*"))) == 1
    mp.spawn(process_jobs.resume, (3, str(tmp_path), False), nprocs=3)  # pyright: ignore
    for rank in range(3):
        assert_same_answers({"outputs": torch.load(tmp_path / f"3-{rank}.pt")}, alone("prune")["ldrf"])
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["ldrf.json", "model.safetensors", "report.json"]
