"""Prunes a small network again and again, kills it with SIGKILL at random moments, resumes it, and compares the bits.

``python tests/killed_runs.py FOLDER KILLS SEED`` prints one line of JSON: kills by what the run was doing, runs that
came to their end, and how many of those ended with other bits than an uninterrupted run. Every attempt is a process of
its own, forked when torch is imported and the network traced already.
"""

# pyright: reportAttributeAccessIssue=false

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import torch
from networks import images, settled
from torch import nn
from tqdm import tqdm

import ldrf
import ldrf.pipeline
from ldrf.algebra import descent
from ldrf.calibration.network import read_network

CONFIG = ldrf.PruneConfig(steps=6, joint_steps=4, chunk=16, memory="50kB", energy=0.1)
descent.KEEP_EVERY = 0.0  # every step of all units together is kept


def network() -> nn.Module:
    torch.manual_seed(0)
    width, layers = 16, []
    for i in range(4):
        layers += [nn.Conv2d(width if i else 3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return settled(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5)))


def attempt(folder: Path, tell: int) -> None:
    """One run in this process, resumed where there is something to resume; tells over a pipe what it is doing."""

    def say(event: str, _: dict) -> None:
        os.write(tell, f"{event}\n".encode())

    ldrf.prune(network(), [images(32)], speedup=2.0, config=CONFIG, out=folder, resume=True, on_event=say)


def started(folder: Path) -> tuple[int, int]:
    """A process that prunes into ``folder``, and the end of the pipe on which it tells its events."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.close(read)
    code = 1
    try:
        attempt(folder, write)
        code = 0
    finally:
        os._exit(code)


def outcome(folder: Path) -> tuple[dict, dict]:
    """What must be the same: the tensors' bits, and what the record says of widths and units."""
    record = json.loads((folder / "ldrf.json").read_text())
    return ldrf.load(folder, network()).state_dict(), {k: record[k] for k in ("widths", "history", "sha256", "ranks")}


def same(one: tuple[dict, dict], other: tuple[dict, dict]) -> bool:
    tensors = all(torch.equal(one[0][n], other[0][n]) for n in one[0]) and list(one[0]) == list(other[0])
    return tensors and one[1] == other[1]


def events(pipe: int) -> list[str]:
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 10_000).decode().split()
    except BlockingIOError:
        return []


def timed(folder: Path) -> float:
    """Seconds that an uninterrupted run takes."""
    start = time.monotonic()
    child, pipe = started(folder)
    if os.waitpid(child, 0)[1] != 0:
        raise AssertionError("the uninterrupted run failed")
    os.close(pipe)
    return time.monotonic() - start


def killed(root: Path, kills: int, seed: int) -> dict:
    traced = read_network(network(), [images(32)], (), CONFIG)
    with patch("ldrf.run.read_network", lambda *_: traced):
        return _killed(root, kills, random.Random(seed))


def _killed(root: Path, kills: int, draw: random.Random) -> dict:
    seconds = timed(root / "whole")
    wanted, folder = outcome(root / "whole"), root / "killed"
    hit: Counter[str] = Counter()
    ended = differing = most = in_a_row = 0
    while sum(hit.values()) < kills or in_a_row:
        child, pipe = started(folder)
        if sum(hit.values()) < kills:
            time.sleep(draw.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
        code, seen = os.waitpid(child, 0)[1], events(pipe)
        os.close(pipe)
        if code == signal.SIGKILL:
            hit[seen[-1] if seen else "start"] += 1
            in_a_row += 1
        elif code != 0:
            raise AssertionError(f"a resumed run failed after {in_a_row} kills")
        if code == 0 or (folder / "ldrf.json").exists() and not (folder / "ldrf-journal").exists():
            ended, most, in_a_row = ended + 1, max(most, in_a_row), 0
            differing += not same(outcome(folder), wanted)
            left = [p.name for p in root.iterdir() if p.name not in ("whole", "killed")]
            if [p.name for p in folder.iterdir() if p.name.startswith(("ldrf-", "."))]:
                raise AssertionError(f"a finished run left something in its folder: {os.listdir(folder)}")
            shutil.rmtree(folder)
            if left and code == 0:
                raise AssertionError(f"a finished run left something beside its folder: {left}")
    return {"kills": sum(hit.values()), "while": dict(hit), "ended": ended, "differing": differing, "most": most}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # tqdm's own is shared with forked processes: one that is killed may leave it shut
    tqdm.monitor_interval = 0  # no thread that may hold the lock while a process is forked
    print(json.dumps(killed(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
