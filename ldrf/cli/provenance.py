"""How a result was made, noted so that ``ldrf repeat`` can make it again."""

import dataclasses
import platform
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ldrf.cli.arguments.base import RANDOM
from ldrf.cli.arguments.prune import Prune
from ldrf.errors import LdrfError
from ldrf.files.checksums import file_checksum
from ldrf.files.result_folders import WEIGHTS

NOT_NOTED = {"out", "resume", "force", "json", "test_images"}  # they do not change the slim model
LIBRARIES = ("torch", "numpy", "safetensors")


def noted(command: Prune) -> dict[str, Any]:
    """The command, the files it read with their checksums, the machine and the versions of libraries."""
    return {
        "command": shlex.join(["ldrf", *argv(command, whole=False)]),
        "argv": argv(command, whole=True),
        "files": {role: {"file": file, "sha256": checksum(file)} for role, file in files(command).items()},
        "environment": environment(),
    }


def files(command: Prune) -> dict[str, str]:
    """Files of weights and of code that a command names, by what they are for."""
    paths = {"weights": None if command.weights == RANDOM else command.weights}
    for role in ("model", "architecture", "data"):
        file = (getattr(command, role) or "").rpartition(":")[0]
        paths[role] = file if file.endswith(".py") else None
    if Path(command.model).is_dir():
        paths["model"] = str(Path(command.model) / WEIGHTS)
    return {role: file for role, file in paths.items() if file is not None}


def environment() -> dict[str, Any]:
    """What the bits of a result depend on besides its settings."""
    libraries = {name: version(name) for name in LIBRARIES}
    return {**libraries, "python": platform.python_version(), "machine": platform.machine()} | {
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def argv(command: Prune, whole: bool) -> list[str]:
    """The command line, with all its settings or (not ``whole``) with those that are not the defaults."""
    flags: list[str] = []
    for field, value in _settings(command):
        default = field.default is not dataclasses.MISSING and value == field.default
        switch = field.type is bool
        if field.name in {"model", *NOT_NOTED} or value is None or value == () or (default and (switch or not whole)):
            continue
        values = () if switch else value if isinstance(value, tuple) else (value,)
        flags += [f"--{field.name.replace('_', '-')}", *map(str, values)]
    return ["prune", command.model, *flags]


def _settings(command: Any) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Fields and values of a command, those of its configuration included."""
    settings = []
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        settings += _settings(value) if dataclasses.is_dataclass(value) else [(field, value)]
    return settings


def checksum(file: str) -> str:
    """SHA-256 of a file."""
    try:
        return file_checksum(Path(file).expanduser())
    except OSError as problem:
        raise LdrfError(f"Cannot read '{file}': {problem.strerror}.") from problem
