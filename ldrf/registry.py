"""Things that are chosen by name, one file each: to add one, add a file to its package, or register it from outside."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ldrf.errors import LdrfError

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries of one kind by name.

    A built-in entry is a module of ``package`` that defines ``ENTRY``; its name is that of the file. Listing names
    imports nothing, so that the command line can show them at once.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._registered: dict[str, T] = {}

    @property
    def built_in(self) -> tuple[str, ...]:
        """Names of the modules of the package, without those that start with an underscore."""
        folder = Path(__file__).parent.joinpath(*self.package.split(".")[1:])
        return tuple(sorted(f.stem.replace("_", "-") for f in folder.glob("*.py") if not f.name.startswith("_")))

    @property
    def names(self) -> tuple[str, ...]:
        """All names: those that are built in, then those that were registered."""
        return (*self.built_in, *(name for name in self._registered if name not in self.built_in))

    def find(self, name: str) -> T:
        """The entry of this name."""
        if name in self._registered:
            return self._registered[name]
        if name not in self.built_in:
            raise LdrfError(f"The '{self.kind}' must be one of {', '.join(self.names)}. Got {name!r} instead.")
        return importlib.import_module(f"{self.package}.{name.replace('-', '_')}").ENTRY

    def register(self, name: str, entry: T) -> None:
        """Add an entry under a new name."""
        if name in self.names:
            raise LdrfError(f"There is a {self.kind} called {name!r} already: choose another name.")
        self._registered[name] = entry

    @contextmanager
    def registered(self, name: str, entry: T) -> Iterator[None]:
        """Within, the entry is registered."""
        self.register(name, entry)
        try:
            yield
        finally:
            del self._registered[name]


OBJECTIVES: Registry[Any] = Registry("objective", "ldrf.planning.objectives")
METHODS: Registry[Any] = Registry("method", "ldrf.methods")
SOLVERS: Registry[Any] = Registry("solver", "ldrf.reconstruction.solvers")
RUNTIMES: Registry[Any] = Registry("runtime", "ldrf.deployment.runtimes")
