"""What the user asks for - a ratio, explicit widths, layers to leave alone - checked and made exact."""

import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from numbers import Integral, Real
from typing import Any

from torch import nn

from ldrf.config import Deployment, milliseconds
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.registry import OBJECTIVES
from ldrf.units.branches import Branch
from ldrf.units.indices import least_width
from ldrf.units.unit import Skipped, Unit
from ldrf.units.width_choices import nearest_choice, odd_widths, width_choices

Ignore = str | Iterable[str] | Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class Target:
    """What to reach: a ratio of dense to slim cost in an objective, or a width or a share for each named unit."""

    objective: str | None = None
    ratio: float = 1.0
    widths: Mapping[str, int] | None = None
    keep: Mapping[str, float] | None = None
    deployment: Deployment | None = None  # of the objective "latency"
    time: str | None = None  # the latency, where it is asked for as a time and the ratio is not known yet

    def as_dict(self) -> dict[str, Any]:
        """What is asked for, ready for JSON."""
        if self.widths is not None:
            return {"widths": {name: int(width) for name, width in self.widths.items()}}
        if self.keep is not None:
            return {"keep": {name: float(share) for name, share in self.keep.items()}}
        asked = {str(self.objective): self.time or float(self.ratio)}
        return asked if self.deployment is None else asked | asdict(self.deployment)


def read_target(
    speedup: float | None = None,
    params: float | None = None,
    widths: Mapping[str, int] | None = None,
    keep: Mapping[str, float] | None = None,
    objective: tuple[str, float] | None = None,
    latency: float | str | None = None,
    deployment: Deployment | None = None,
) -> Target:
    """The one target that a call of prune names; ``speedup`` and ``params`` are objectives of their own name."""
    given = {"speedup": speedup, "params": params, "widths": widths, "keep": keep, "objective": objective}
    given["latency"] = latency
    asked = [name for name, value in given.items() if value is not None]
    if len(asked) != 1:
        raise LdrfError(
            "Exactly one of speedup=, params=, widths=, keep=, objective= and latency= must be given. "
            f"Got {' and '.join(asked) if asked else 'none of them'} instead."
        )
    if latency is not None:
        return _latency_target(latency, deployment or Deployment())
    if deployment is not None:
        raise LdrfError(f"A 'deployment' goes with latency=. Got it with {asked[0]}= instead.")
    if widths is not None or keep is not None:
        return Target(widths=widths, keep=keep)
    name, ratio = _named_ratio(objective) if objective is not None else (asked[0], given[asked[0]])
    OBJECTIVES.find(name)  # a wrong name is told here
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not float(ratio) > 1:
        raise LdrfError(f"The '{name}' must be a number above 1 (dense / slim). Got {ratio!r} instead.")
    return Target(name, float(ratio))


def _latency_target(latency: Any, deployment: Any) -> Target:
    if not isinstance(deployment, Deployment):
        raise LdrfError(f"The 'deployment' must be an ldrf.Deployment. Got {type(deployment).__name__} instead.")
    if isinstance(latency, str):
        milliseconds(latency)  # a wrong unit is told here
        return Target("latency", deployment=deployment, time=latency)
    if isinstance(latency, bool) or not isinstance(latency, Real) or not float(latency) > 1:
        raise LdrfError(
            "The 'latency' must be a number above 1 (dense time / slim time) or a time such as '4 ms'. "
            f"Got {latency!r} instead."
        )
    return Target("latency", float(latency), deployment=deployment)


def _named_ratio(objective: Any) -> tuple[str, Any]:
    if not isinstance(objective, tuple) or len(objective) != 2 or not isinstance(objective[0], str):
        raise LdrfError(
            f"The 'objective' must be a name and a ratio, such as ('params', 2.0). Got {objective!r} instead."
        )
    return objective


def exact_widths(
    target: Target,
    units: tuple[Unit, ...],
    skipped: tuple[Skipped, ...],
    multiple: int = 1,
    branches: tuple[Branch, ...] = (),
) -> dict[str, int]:
    """Explicit widths for every unit from ``widths=`` or ``keep=``; units that are not named stay whole.

    Widths are taken as they are given, shares go to the nearest of the unit's multiples. A width of 0 leaves the
    unit's whole branch out.
    """
    known = {u.name: u for u in units}
    asked: Mapping[str, Any] = target.widths if target.widths is not None else target.keep or {}
    what = "widths" if target.widths is not None else "keep"
    widths = {u.name: u.width for u in units}
    for name, value in asked.items():
        if name not in known:
            raise LdrfError(_unknown(what, name, units, skipped))
        unit = known[name]
        branch = _branch_of(name, branches) if what == "widths" and value == 0 and type(value) is not bool else None
        if branch is not None:
            widths |= {other: 0 for other in branch.units if other in known}
        else:
            widths[name] = _width(unit, value) if what == "widths" else _share(unit, value, multiple)
    return widths


def _branch_of(name: str, branches: tuple[Branch, ...]) -> Branch | None:
    """The smallest branch with this unit."""
    own = [branch for branch in branches if name in branch.units]
    return min(own, key=lambda branch: len(branch.calls), default=None)


def warn_of_odd_widths(target: Target, units: tuple[Unit, ...], multiple: int) -> None:
    """Say once where widths given by hand fill no whole blocks of channels."""
    odd = odd_widths(units, {name: width for name, width in (target.widths or {}).items() if width != 0}, multiple)
    if odd:
        name, better = next(iter(odd.items()))
        others = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
        warnings.warn(
            f"The width {(target.widths or {})[name]} of '{name}'{others} is no multiple that runtimes have whole "
            f"kernels for, and may be slower than a larger one: {better} is near.",
            LdrfWarning,
            stacklevel=3,
        )


def _width(unit: Unit, value: Any) -> int:
    least, full = least_width(unit), unit.width
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= full:
        hint = " (0 leaves a residual branch out, with depth=True)" if value == 0 and value is not False else ""
        raise LdrfError(
            f"The width of '{unit.name}' must be a whole number from {least} to {full}. Got {value!r} instead{hint}."
        )
    return int(value)


def _share(unit: Unit, value: Any, multiple: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1:
        raise LdrfError(f"The share to keep of '{unit.name}' must be above 0 and at most 1. Got {value!r} instead.")
    return nearest_choice(width_choices(unit, least_width(unit), multiple), round(float(value) * unit.width))


def _unknown(what: str, name: str, units: tuple[Unit, ...], skipped: tuple[Skipped, ...]) -> str:
    for layer in skipped:
        if layer.name == name:
            return f"Layer '{name}' in {what}= cannot be cut: {layer.reason}."
    for unit in units:
        if name in unit.makers:
            return f"Layer '{name}' in {what}= is cut with '{unit.name}', which stands for both: name that one."
    names = [u.name for u in units]
    close = difflib.get_close_matches(str(name), names, 3) or names[:3]
    return f"Unknown layer '{name}' in {what}=: expected the name of a prunable layer, such as {', '.join(close)}."


def apply_ignore(protected: frozenset[str], units: tuple[Unit, ...]) -> tuple[tuple[Unit, ...], tuple[Skipped, ...]]:
    """Leave out every unit that would change the shape of an ignored layer, be it its outputs or its inputs."""
    left, skipped = [], []
    for unit in units:
        hit = next((name for name in _touched(unit) if name in protected), None)
        if hit is None:
            left.append(unit)
        else:
            for name in unit.makers:
                why = "it is ignored" if name in protected else f"'{hit}', which it would change, is ignored"
                skipped.append(Skipped(name, why))
    return tuple(left), tuple(skipped)


def _touched(unit: Unit) -> list[str]:
    layers = [unit.producer, *unit.partners, *(c.layer for c in unit.consumers)]
    norms = [layer.norm.module for layer in layers if layer.norm]
    return [*unit.layers, *norms, *(s.tensor.rpartition(".")[0] for s in unit.slices)]


def ignored_modules(model: nn.Module, ignore: Ignore) -> frozenset[str]:
    """Names of all modules meant by ``ignore``: names, globs, or a function; each with all that it contains."""
    modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    if callable(ignore):
        return _with_contents(modules, {name for name, module in modules.items() if ignore(name, module)})
    patterns = [ignore] if isinstance(ignore, str) else list(ignore)
    ignored: set[str] = set()
    for pattern in patterns:
        hits = {n for n in modules if fnmatchcase(n, str(pattern))}
        if not hits:
            close = difflib.get_close_matches(str(pattern), modules, 3)
            hint = f"; did you mean {', '.join(close)}?" if close else "."
            raise LdrfError(f"Unknown layer '{pattern}' in ignore=: no module has that name{hint}")
        ignored |= hits
    return _with_contents(modules, ignored)


def _with_contents(modules: Mapping[str, nn.Module], names: set[str]) -> frozenset[str]:
    return frozenset(n for n in modules if any(n == name or n.startswith(f"{name}.") for name in names))
