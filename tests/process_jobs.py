"""What the tests let several processes do together, and a single one alone: the same functions."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from networks import Residual, images, make
from torch import Tensor, nn

import ldrf
from ldrf import processes
from ldrf.data.sources import IndexedBatches
from ldrf.norms import shared_norms
from ldrf.tuning_data import own_batches, parts

CONFIG = ldrf.PruneConfig(steps=12, chunk=8, energy=0.1)
MASK = ldrf.PruneConfig(steps=6, chunk=8, energy=0.1, solver="l1-mask", selection="apoz", metric="embedding-data")
TUNE = ldrf.FinetuneConfig(epochs=2, batch=7, labels=0.5, held_out=0.2)


def work(rank: int, count: int, folder: str, jobs: tuple[str, ...]) -> None:
    """One of ``count`` processes: it does the jobs and keeps what came out of them, its own outputs included."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ldrf.LdrfWarning)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count)
    found = {job: JOBS[job](Path(folder)) for job in jobs}
    dist.destroy_process_group()
    torch.save(found, f"{folder}/{rank}.pt")


def answers(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model.eval()(images(16, seed=9))


def prune(folder: Path) -> dict[str, Any]:
    """37 images in batches of 11 and chunks of at most 8: uneven shares, and a chunk of fewer rows than processes."""
    told: list[str] = []
    batches = images(37).split(11)
    result = ldrf.prune(
        make(Residual), batches, speedup=1.5, config=CONFIG, on_event=lambda event, data: told.append(event)
    )
    ldrf.save(result, folder / f"saved-by-{processes.rank()}")
    return {"outputs": answers(result.model), "widths": result.widths, "images": result.images, "told": told}


def mask(folder: Path) -> dict[str, Any]:
    """Images one by one, so that every chunk is in one process alone; the mask of Eqn. 4 and an embedding's metric."""
    result = ldrf.prune(make(Residual), images(11).split(1), speedup=1.4, config=MASK)
    return {"outputs": answers(result.model), "widths": result.widths}


def taylor(folder: Path) -> dict[str, Any]:
    batches = [(x, torch.arange(len(x)) % 5) for x in images(21).split(10)]
    result = ldrf.prune(make(Residual), batches, speedup=1.5, config=CONFIG, method="molchanov2017")
    return {"outputs": answers(result.model), "widths": result.widths}


def labelled(rows: int) -> list[Any]:
    return [(images(rows), torch.arange(rows) % 5)]


def finetune(folder: Path) -> dict[str, Any]:
    """30 images to train on in batches of 7, the last of 2: fewer than three processes."""
    dense = make(Residual)
    slim = ldrf.prune(dense, [images(16)], widths={"block1.conv1": 4}, config=ldrf.PruneConfig(solver="none")).model
    tuned = ldrf.finetune(slim, dense, labelled(37), config=TUNE, resume=folder / f"state-{processes.count()}.pt")
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
    processes.check_same([torch.ones(3)], "ones")
    if count > 1:
        with pytest.raises(ldrf.LdrfError, match=f"All {count} processes must be given the same ranks"):
            processes.check_same([torch.tensor(rank)], "ranks")
        with pytest.raises(ldrf.LdrfError, match="same calibration batches"):
            ldrf.prune(make(Residual), [images(8, seed=rank)], speedup=1.5)
    return found


def reading(folder: Path) -> dict[str, Any]:
    """Batches made from rows: what is read of them, to train on and to judge by."""
    read: list[list[int]] = []
    batches = IndexedBatches(lambda rows: (read.append(rows), labelled(len(rows))[0])[1], tuple(range(10)), batch=4)
    shares = [(part.start, part.whole, part.weight) for part in parts(make(Residual), batches, True)]
    trained = [*read]
    judged = len(list(own_batches(batches)))
    return {"trained": trained, "shares": shares, "judged": judged}


JOBS = {
    "prune": prune,
    "mask": mask,
    "taylor": taylor,
    "finetune": finetune,
    "norms": norms,
    "agreement": agreement,
    "reading": reading,
}


def factory() -> nn.Module:
    return make(Residual)


def data(split: str) -> list[Any]:
    rows = 37 if split == "train" else 12
    return [(x, torch.arange(len(x)) % 5) for x in images(rows, seed=split == "test").split(11)]


def dying_factory() -> nn.Module:
    """The same network, with which the second process is killed when it has solved a unit."""
    import os
    import signal

    import ldrf.pipeline

    if processes.rank() == 1:
        ldrf.pipeline.commit_solution = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # pyright: ignore
    return factory()


def read_result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "ldrf.json").read_text())
