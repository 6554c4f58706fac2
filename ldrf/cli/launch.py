"""The command line in several processes, as ``torchrun`` starts them: they meet, watch each other, and part."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, rendezvous  # pyright: ignore[reportPrivateImportUsage]

from ldrf.cli.output import UsageError
from ldrf.errors import LdrfError, first_line

GIVEN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells every process
PATIENCE = 40.0  # seconds without a sign of life after which a process is taken for dead
GRACE = 5.0  # seconds that are left to clean up then
# A process may wait long for one that has more to do; those that died are found by their signs of life.
TIMEOUT = timedelta(hours=6)


class Told(LdrfError):
    """An error that was printed already, by this process or another; ``code`` is what to exit with."""

    def __init__(self, code: int) -> None:
        super().__init__("told already")
        self.code = code


def launched() -> bool:
    """Whether torchrun started this as one of several processes."""
    return all(name in os.environ for name in GIVEN) and int(os.environ["WORLD_SIZE"]) > 1


def speaks() -> bool:
    """Whether this process prints: the only one, or the first."""
    return not launched() or os.environ["RANK"] == "0"


@contextlib.contextmanager
def others_silent() -> Iterator[None]:
    """Nothing is printed in processes other than the first."""
    if speaks():
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


@contextlib.contextmanager
def process_group(shareable: bool) -> Iterator[None]:
    """Meet the other processes, if there are any and the command can be shared; an error is printed by one alone."""
    if not launched():
        yield
        return
    if not shareable:
        raise UsageError("Only prune and finetune work in several processes: start this command without torchrun.")
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with _as_errors(rank, count):
        store = next(rendezvous("env://", timeout=timedelta(minutes=5)))[0]
        gpus = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", count))
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=TIMEOUT)
    own = PrefixStore("ldrf", store)
    end = watch(own, rank, count, lambda reason: _give_up(own, rank, f"{reason} Start the run again."))
    try:
        with _ended_plainly():
            yield
    except (LdrfError, OSError) as problem:
        code = 2 if isinstance(problem, UsageError) else 1
        _tell_once(own, rank, str(problem))
        raise Told(code) from problem
    finally:
        end()
        dist.destroy_process_group()


@contextlib.contextmanager
def _as_errors(rank: int, count: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:
        raise LdrfError(f"Process {rank} of {count} cannot meet the others: {first_line(problem)}") from problem


@contextlib.contextmanager
def _ended_plainly() -> Iterator[None]:
    """SIGTERM, which torchrun sends to all when one process failed, is an error as any other."""

    def ended(*_: Any) -> None:
        raise LdrfError("This run was ended from outside, or as another of its processes died: start it again.")

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell_once(store: Store, rank: int, message: str) -> None:
    """Print an error, unless another process has printed one already."""
    mine = f"{rank}: {message}"
    try:
        first = store.compare_set("error", "", mine) == mine.encode()
    except RuntimeError:  # the machine that keeps the store is gone
        first = True
    if first:
        print(f"error: {message}", file=sys.stderr, flush=True)


def watch(
    store: Store, rank: int, count: int, lost: Callable[[str], None], patience: float = PATIENCE
) -> Callable[[], None]:
    """Give signs of life through ``store``, and call ``lost`` with a sentence when another process gives none.

    It is done in a thread, so that long work between two sums is no sign of death. Returns what ends it.
    """
    over = threading.Event()
    others = [f"life/{other}" for other in range(count) if other != rank]

    def live() -> None:
        seen: dict[str, tuple[bytes, float]] = {}
        beat = 0
        while not over.wait(patience / 20):
            beat += 1
            try:
                store.set(f"life/{rank}", str(beat))
                signs = {name: store.get(name) if store.check([name]) else b"" for name in others}
            except RuntimeError:
                return None if over.is_set() else lost("The process that keeps the others together is gone.")
            now = time.monotonic()
            for name, sign in signs.items():
                if name not in seen or seen[name][0] != sign or sign == b"done":
                    seen[name] = sign, now
                elif now - seen[name][1] > patience:
                    who = name.removeprefix("life/")
                    return lost(f"Process {who} of {count} gave no sign of life for {patience:.0f} s.")

    thread = threading.Thread(target=live, daemon=True)
    thread.start()

    def end() -> None:
        over.set()
        thread.join(patience)
        with contextlib.suppress(RuntimeError):
            store.set(f"life/{rank}", "done")

    return end


def _give_up(store: Store, rank: int, reason: str) -> None:
    """End this process: as on SIGTERM if it can, else without more ado, as it may wait for the dead one for ever."""
    _tell_once(store, rank, reason)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)
