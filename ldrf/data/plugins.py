"""``path/to/file.py:factory``: models and data that the user defines in a Python file of their own."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ldrf.errors import LdrfError


def is_factory(name: str) -> bool:
    """Whether ``name`` has the form ``path/to/file.py:factory``."""
    return name.rpartition(":")[0].endswith(".py")


def load_factory(name: str) -> Callable[..., Any]:
    """The function that ``path/to/file.py:factory`` names, found by running the file."""
    file, _, attribute = name.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise LdrfError(f"No Python file '{file}', as named by '{name}'.")
    spec = importlib.util.spec_from_file_location(f"ldrf_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise LdrfError(f"'{file}' can't be loaded as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles defined in the file look themselves up here
    sys.path.insert(0, str(path.resolve().parent))  # so that the file's neighbours can be imported, as in a script
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise LdrfError(f"Running '{file}' failed with {type(problem).__name__}: {problem}.") from problem
    finally:
        sys.path.remove(str(path.resolve().parent))
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise LdrfError(f"'{file}' has no function '{attribute}'.")
    return factory


def call_factory(name: str, *args: Any) -> Any:
    """Call what ``name`` names, turning an exception of the user's code into one sentence."""
    factory = load_factory(name)
    try:
        return factory(*args)
    except Exception as problem:
        raise LdrfError(f"'{name}' failed with {type(problem).__name__}: {problem}.") from problem
