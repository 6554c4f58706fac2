"""The process group of a command that ``torchrun`` started: processes meet, watch each other, and part."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, rendezvous  # pyright: ignore[reportPrivateImportUsage]

from ldrf.cli.arguments.base import UsageError
from ldrf.cli.torchrun import AlreadyPrinted, launched
from ldrf.errors import LdrfError, first_line
from ldrf.runtime.device import bind_rank

PATIENCE = 40.0  # seconds without a sign of life after which a process is taken for dead
GRACE = 5.0  # seconds that are left to clean up then
# A process may wait long for one that has more to do; dead ones are noticed by their missing signs of life.
TIMEOUT = timedelta(hours=6)


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
        _, backend = bind_rank()
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=TIMEOUT)
    own = PrefixStore("ldrf", store)
    end = watch(own, rank, count, lambda reason: _give_up(own, rank, f"{reason} Start the run again."))
    try:
        with _ended_plainly():
            yield
    except (LdrfError, OSError) as problem:
        code = 2 if isinstance(problem, UsageError) else 1
        _print_once(own, rank, str(problem))
        raise AlreadyPrinted(code) from problem
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
        raise LdrfError("This run was ended from outside, or because another of its processes died: start it again.")

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_once(store: Store, rank: int, message: str) -> None:
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

    This runs in a thread, so that long work between two sums is not taken for death. Returns a function that ends it.
    """
    over = threading.Event()
    others = [f"life/{other}" for other in range(count) if other != rank]

    def live() -> None:
        latest: dict[str, tuple[bytes, float]] = {}  # each one's last sign, and when it came
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
                if name not in latest or latest[name][0] != sign or sign == b"done":
                    latest[name] = sign, now
                elif now - latest[name][1] > patience:
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
    """End this process: as on SIGTERM if it can, else at once, as it may wait for the dead one for ever."""
    _print_once(store, rank, reason)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)
