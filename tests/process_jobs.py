"""What the tests let several processes do together, and a single one alone: the same functions."""

import contextlib
import functools
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from networks import Residual, images, make
from torch import Tensor, nn

import ldrf
import ldrf.pipeline
from ldrf import cli
from ldrf.calibration.augmentation import blend_shares as drawn
from ldrf.calibration.indexed_batches import IndexedBatches
from ldrf.calibration.network import read_network
from ldrf.cli.torchrun import GIVEN
from ldrf.finetuning.data import own_batches, parts
from ldrf.finetuning.shared_norms import shared_norms
from ldrf.runtime import processes
from ldrf.saving.journal import Journal

CONFIG = ldrf.PruneConfig(steps=6, joint_steps=8, augment=True, chunk=8, energy=0.1, precision="float32")
MASK = ldrf.PruneConfig(
    steps=6, chunk=8, energy=0.1, solver="l1-mask", selection="apoz", metric="embedding-data", precision="float32"
)
TUNE = ldrf.FinetuneConfig(epochs=2, batch=7, labels=0.5, held_out=0.2, precision="float32")


def unblended(job: Callable[..., Any]) -> Callable[..., Any]:
    """Every process blends its own images with one another, so that the first of them has another neighbour."""

    def none_of_them(generator: torch.Generator, start: int, whole: int) -> Tensor:
        return 0 * drawn(generator, start, whole)

    @functools.wraps(job)
    def done(*given: Any) -> Any:
        with patch("ldrf.calibration.augmentation.blend_shares", none_of_them):
            return job(*given)

    return done


def work(rank: int, count: int, folder: str) -> None:
    """One of ``count`` processes: it does all jobs and keeps what came out of them."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ldrf.LdrfWarning)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count)
    found = {job: JOBS[job](Path(folder)) for job in JOBS}
    dist.destroy_process_group()
    torch.save(found, f"{folder}/{rank}.pt")


def answers(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model.eval()(images(16, seed=9))


def labelled(rows: int, batch: int) -> list[Any]:
    return [(x, torch.arange(len(x)) % 5) for x in images(rows).split(batch)]


@unblended
def prune(folder: Path) -> dict[str, Any]:
    """37 images in batches of 10 and chunks of 8 and 2: uneven shares, and chunks of which a third process has none.

    The network is read once; then the mask of Eqn. 4 in an embedding's metric and a method with labels prune it, too.
    """
    told: list[str] = []
    batches, network = labelled(37, 10), read_network(make(Residual), labelled(37, 10), (), CONFIG, True)
    found: dict[str, Any] = {}
    with patch("ldrf.run.read_network", lambda *_: network):
        ways = {"ldrf": CONFIG, "mask": MASK, "molchanov2017": CONFIG, "thinet": CONFIG}
        for way, config in list(ways.items())[: 1 if processes.count() == 2 else None]:
            listener = (lambda event, _: told.append(event)) if way == "ldrf" else None
            method = "ldrf" if way == "mask" else way
            result = ldrf.prune(network.model, batches, speedup=1.5, config=config, method=method, on_event=listener)
            found[way] = {"outputs": answers(result.model), "widths": result.widths, "images": result.images}
    ldrf.save(result, folder / f"saved-by-{processes.rank()}")
    return {"results": found, "told": told, "rows": [chunk.rows for chunk in network.calibration.chunks]}


@unblended
def finetune(folder: Path) -> dict[str, Any]:
    """30 images to train on in batches of 7, the last of 2: fewer than three processes."""
    dense, slim = make(Residual), make(Residual, seed=1)
    state = folder / f"state-{processes.count()}.pt"
    tuned = ldrf.finetune(slim, dense, labelled(37, 37), config=TUNE, resume=state)
    losses = [e.loss for e in tuned.epochs]
    norm = tuned.model.get_submodule("block1.bn1").state_dict()
    return {"outputs": answers(tuned.model), "losses": losses, "ended": tuned.ended, "images": tuned.images, **norm}


def norms(folder: Path) -> dict[str, Any]:
    """A BatchNorm on 7 rows, and its slopes: each process takes its rows of them."""
    torch.manual_seed(0)
    x, weights = torch.randn(7, 3, 4, 4), torch.randn(7, 3, 4, 4)
    norm = nn.BatchNorm2d(3, momentum=None)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 2, -1]))
    start, stop = processes.share(len(x))
    own = x[start:stop].requires_grad_(True)
    with shared_norms(norm, processes.count() > 1):
        y = norm(own)
    (y * weights[start:stop]).square().sum().backward()
    processes.sum_slopes(norm.parameters())
    together = {"y": y, "slope": own.grad, "place": (start, stop)}
    return {**together, "parameters": [p.grad for p in norm.parameters()], "state": norm.state_dict()}


def agreement(folder: Path) -> dict[str, Any]:
    """Sums, what only the first says, errors of the first, and given things that differ."""
    rank, count = processes.rank(), processes.count()
    found: dict[str, Any] = {"sum": processes.sum_over(torch.tensor([1.0, rank])).tolist()}
    found["all"] = processes.sum_all({"both": torch.ones(2), **({"mine": torch.ones(3)} if rank == 0 else {})})
    found["agreed"] = processes.agreed(f"by {rank}")

    def fails() -> None:
        (folder / f"called-by-{rank}-of-{count}").touch()
        raise ldrf.LdrfError("The first says no.")

    with pytest.raises(ldrf.LdrfError, match="first says no"):
        processes.from_first(fails)
    processes.check_same(lambda: "one", "ones")
    if count > 1:
        with pytest.raises(ldrf.LdrfError, match=f"All {count} processes must be given the same ranks"):
            processes.check_same(lambda: str(rank), "ranks")
        with pytest.raises(ldrf.LdrfError, match="same calibration batches"):
            ldrf.prune(make(Residual), [images(8, seed=rank)], speedup=1.5)
    return found


def reading(folder: Path) -> dict[str, Any]:
    """Batches made from rows: what is read of them, to train on and to judge by."""
    read: list[list[int]] = []
    batches = IndexedBatches(lambda rows: (read.append(rows), labelled(len(rows), 10)[0])[1], tuple(range(10)), batch=4)
    shares = [(part.start, part.whole, part.weight) for part in parts(make(Residual), batches, True)]
    trained = [*read]
    judged = len(list(own_batches(batches)))
    return {"trained": trained, "shares": shares, "judged": judged}


JOBS = {
    "prune": prune,
    "finetune": finetune,
    "norms": norms,
    "agreement": agreement,
    "reading": reading,
}


def factory() -> nn.Module:
    return make(Residual)


def data(split: str) -> list[Any]:
    rows = 37 if split == "train" else 12
    return [(x, torch.arange(len(x)) % 5) for x in images(rows, seed=int(split == "test")).split(11)]


def dying_factory() -> nn.Module:
    """The same network, with which the second process is killed when it has solved a unit; the time of it is kept."""

    def die(*_: Any) -> None:
        Path(os.environ["LDRF_TEST_DIED"]).write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)

    if processes.rank() == 1:
        ldrf.pipeline.commit_solution = die
    return factory()


@unblended
def resume(rank: int, count: int, folder: str, stopped: bool) -> None:
    """One of ``count`` processes that prune into ``folder/run``, stopped when the first unit is done or not."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ldrf.LdrfWarning)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{count}", rank=rank, world_size=count)
    keep = Journal.keep_solved

    def keep_and_stop(*given: Any) -> None:
        keep(*given)
        raise KeyboardInterrupt

    with patch.object(Journal, "keep_solved", keep_and_stop if stopped else keep):
        try:
            result = ldrf.prune(
                make(Residual), labelled(37, 10), speedup=1.5, config=CONFIG, out=f"{folder}/run", resume=True
            )
            torch.save(answers(result.model), f"{folder}/{count}-{rank}.pt")
        except KeyboardInterrupt:
            assert stopped
    dist.destroy_process_group()


def command(rank: int, count: int, folder: str, port: int, argv: list[str]) -> None:
    """One of ``count`` processes as torchrun starts them, with the command ``argv``; what it prints is kept."""
    torch.set_num_threads(1)
    os.environ |= dict(zip(GIVEN, (str(rank), str(count), "localhost", str(port)), strict=True))
    with Path(folder, f"printed-by-{rank}").open("w") as printed, contextlib.redirect_stdout(printed):
        code = cli.main(argv)
    if code:
        raise SystemExit(code)
