"""Measured times kept on disk, so that a second run measures nothing: one file per processor, runtime and setting."""

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ldrf.deployment.geometry import Piece
from ldrf.files.strict_json import read_json
from ldrf.files.writing import write_whole

FOLDER = "LDRF_CACHE"  # the environment variable that names another folder


@dataclass(frozen=True)
class TimeCache:
    """Seconds of pieces by geometry and size, in ``path``; what is not there or damaged is measured again."""

    path: Path
    setting: dict[str, str]
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def get(self, piece: Piece) -> float | None:
        return self.seconds.get(piece.geometry.key, {}).get(_size(piece))

    def put(self, piece: Piece, seconds: float) -> None:
        self.seconds.setdefault(piece.geometry.key, {})[_size(piece)] = seconds

    def write(self) -> None:
        """Keep all on disk, with what another process has put there meanwhile; a full disk costs only the cache."""
        for key, sizes in _read(self.path).items():
            self.seconds[key] = sizes | self.seconds.get(key, {})
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps({"setting": self.setting, "seconds": self.seconds}) + "\n")


def open_cache(runtime: str, version: str, batch: int, threads: int) -> TimeCache:
    """What was measured before on this processor in this setting."""
    setting = {
        "processor": processor(),
        "runtime": runtime,
        "version": version,
        "batch": str(batch),
        "threads": str(threads),
    }
    name = hashlib.sha256(json.dumps(setting).encode()).hexdigest()[:16]
    path = cache_folder() / f"{runtime}-{name}.json"
    return TimeCache(path, setting, _read(path))


def cache_folder() -> Path:
    """The folder that ``LDRF_CACHE`` names, or one where the user's caches lie."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named).expanduser() / "latency"
    user = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(user) if user else Path.home() / ".cache") / "ldrf" / "latency"


def processor() -> str:
    """The processor by the name it gives itself, and what torch can use of it."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name} {torch.backends.cpu.get_cpu_capability()}"


def _size(piece: Piece) -> str:
    return f"{piece.inputs}x{piece.outputs}"


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        stored = read_json(path)["seconds"]
        return {str(k): {str(size): float(t) for size, t in sizes.items()} for k, sizes in stored.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
