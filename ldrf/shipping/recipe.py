"""What to ship and how, as one frozen object and as a small YAML file."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ldrf.config import Deployment, FinetuneConfig, PruneConfig
from ldrf.errors import LdrfError

TARGETS = ("latency", "speedup", "params", "max_drop")
INT8_RUNTIMES = ("onnxruntime", "openvino")  # those that have a quantiser


@dataclass(frozen=True)
class ShipConfig:
    """What the shipped network must reach, where it runs, and the settings of each step."""

    latency: float | str | None = None
    """Target: dense time / slim time, or a time such as "4 ms"."""
    speedup: float | None = None
    """Target: dense MACs / slim MACs."""
    params: float | None = None
    """Target: dense parameters / slim parameters."""
    max_drop: float | None = None
    """Target: the fastest network that loses at most so many points of agreement with the dense one."""
    deployment: Deployment = field(default_factory=lambda: Deployment("onnxruntime"))
    """Where the network will run: the file is made for it, and timed in it."""
    int8: bool = False
    """Also make a file in int8."""
    max_int8_drop: float = 1.0
    """Points of agreement that int8 may cost; a file that costs more is refused."""
    held_out: float = 0.125
    """Share of the images for the final figures alone; as many pick the best epoch of fine-tuning."""
    prune: PruneConfig = field(default_factory=PruneConfig)
    """Settings of the prune."""
    finetune: FinetuneConfig | None = field(default_factory=FinetuneConfig)
    """Settings of the fine-tuning; None leaves it out."""

    def __post_init__(self) -> None:
        given = self.target
        if len(given) != 1:
            raise LdrfError(
                f"Say what to reach with exactly one of {', '.join(TARGETS)}. Got {' and '.join(given) or 'none'}."
            )
        if not 0 < self.held_out < 1:
            raise LdrfError(f"The 'held_out' must lie between 0 and 1. Got {self.held_out!r} instead.")
        if not 0 <= self.max_int8_drop <= 100:
            raise LdrfError(f"The 'max_int8_drop' must lie from 0 to 100. Got {self.max_int8_drop!r} instead.")
        runtime = self.deployment.runtime
        if self.int8 and runtime not in INT8_RUNTIMES:
            raise LdrfError(
                f"A file in int8 is made for {' or '.join(INT8_RUNTIMES)}. Got the runtime {runtime!r}: name one."
            )

    @property
    def target(self) -> dict[str, Any]:
        """What to reach, as the keyword of :func:`ldrf.prune`."""
        return {name: getattr(self, name) for name in TARGETS if getattr(self, name) is not None}

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values, ready for YAML."""
        return asdict(self)


PARTS: dict[str, type[Any]] = {"deployment": Deployment, "prune": PruneConfig, "finetune": FinetuneConfig}


def read_config(values: Mapping[str, Any]) -> ShipConfig:
    """Settings from plain values, such as a YAML file has; unknown names are told, with the nearest that is known."""
    known = _checked("ship", values, ShipConfig)
    for name, kind in PARTS.items():
        value = known.get(name)
        if name == "finetune" and isinstance(value, bool):
            known[name] = FinetuneConfig() if value else None
        elif isinstance(value, Mapping):
            known[name] = kind(**_checked(name, value, kind))
        elif name in known and value is not None:
            raise LdrfError(f"'{name}' must be settings by name. Got {value!r} instead.")
    try:
        return ShipConfig(**known)
    except TypeError as problem:
        raise LdrfError(f"A setting has a value of the wrong kind: {problem}.") from problem


def _checked(where: str, values: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """The values, each of the kind that its setting has by default."""
    names = {f.name: f for f in fields(kind)}
    for name, value in values.items():
        if name not in names:
            near = get_close_matches(str(name), names, 1)
            hint = f": did you mean '{near[0]}'?" if near else f"; there are {', '.join(names)}."
            raise LdrfError(f"There is no setting '{name}' under '{where}'{hint}")
        default = names[name].default
        if default is None and value is not None:  # what is left to others is of the one kind that it may be set to
            kinds: dict[Any, Any] = {int | None: 0, float | None: 0.0, bool | None: False}
            default = kinds.get(names[name].type)
        if isinstance(default, bool) and not isinstance(value, bool):
            raise LdrfError(f"'{where}.{name}' must be true or false. Got {value!r} instead.")
        if default not in (None, MISSING) and not isinstance(default, bool | str):
            _check_number(f"{where}.{name}", value, default)
    return dict(values)


def _check_number(name: str, value: Any, default: Any) -> None:
    whole = isinstance(default, int)
    fine = isinstance(value, int) if whole else isinstance(value, int | float)
    if name == "prune.memory":
        fine = isinstance(value, int | str)
    if isinstance(value, bool) or not fine:
        raise LdrfError(f"'{name}' must be a {'whole ' if whole else ''}number. Got {value!r} instead.")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file as a dict."""
    import yaml

    path = Path(path).expanduser()
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as problem:
        raise LdrfError(f"Cannot read '{path}': {problem.strerror}.") from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise LdrfError(f"'{path}' is not YAML: {str(problem).splitlines()[0]}.") from problem
    if not isinstance(values, dict):
        raise LdrfError(
            f"'{path}' must hold settings by name, such as 'latency: 2'. Got {type(values).__name__} instead."
        )
    return values


def as_yaml(values: Mapping[str, Any]) -> str:
    """Settings as YAML, in their own order."""
    import yaml

    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
