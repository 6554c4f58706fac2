"""ldrf makes a trained network several times cheaper without retraining it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ldrf._version import __version__

if TYPE_CHECKING:
    from ldrf.calibration.mirroring import mirrored
    from ldrf.channels.operators import Operator, register_operator
    from ldrf.config import Deployment, FinetuneConfig, PruneConfig
    from ldrf.deployment.int8 import Quantized, quantize
    from ldrf.deployment.latency import Latency
    from ldrf.errors import LdrfError, LdrfWarning
    from ldrf.finetuning.loop import finetune
    from ldrf.inspection import Inspection, inspect
    from ldrf.pipeline import analyze, prune
    from ldrf.planning.energy import EnergySearch, find_energy
    from ldrf.planning.ranks import Analysis, LayerRank
    from ldrf.reconstruction.single_layer import SingleLayer, prune_layer
    from ldrf.result import FinetuneResult, PruneResult, Tried, UnitReport
    from ldrf.saving.checkpoint import load, save
    from ldrf.saving.export import Exported, export
    from ldrf.saving.loaded_result import load_result
    from ldrf.shipping.recipe import ShipConfig
    from ldrf.shipping.release import ShippedRow
    from ldrf.shipping.ship import Shipped, ship
    from ldrf.sweeping import Point, sweep
    from ldrf.units.unit import Skipped

__all__ = [
    "Analysis",
    "Deployment",
    "EnergySearch",
    "Exported",
    "FinetuneConfig",
    "FinetuneResult",
    "Inspection",
    "Latency",
    "LayerRank",
    "LdrfError",
    "LdrfWarning",
    "Operator",
    "Point",
    "PruneConfig",
    "PruneResult",
    "Quantized",
    "ShippedRow",
    "ShipConfig",
    "Shipped",
    "SingleLayer",
    "Skipped",
    "Tried",
    "UnitReport",
    "__version__",
    "analyze",
    "export",
    "find_energy",
    "finetune",
    "inspect",
    "load",
    "load_result",
    "mirrored",
    "prune",
    "prune_layer",
    "quantize",
    "register_operator",
    "save",
    "ship",
    "sweep",
]

# Where each name lives. It is imported at its first use, so that 'import ldrf' does not wait for torch.
_HOME = {
    "Analysis": "ldrf.planning.ranks",
    "Deployment": "ldrf.config",
    "EnergySearch": "ldrf.planning.energy",
    "Exported": "ldrf.saving.export",
    "FinetuneConfig": "ldrf.config",
    "FinetuneResult": "ldrf.result",
    "Inspection": "ldrf.inspection",
    "Latency": "ldrf.deployment.latency",
    "LayerRank": "ldrf.planning.ranks",
    "LdrfError": "ldrf.errors",
    "LdrfWarning": "ldrf.errors",
    "Operator": "ldrf.channels.operators",
    "Point": "ldrf.sweeping",
    "PruneConfig": "ldrf.config",
    "PruneResult": "ldrf.result",
    "Quantized": "ldrf.deployment.int8",
    "ShippedRow": "ldrf.shipping.release",
    "ShipConfig": "ldrf.shipping.recipe",
    "Shipped": "ldrf.shipping.ship",
    "SingleLayer": "ldrf.reconstruction.single_layer",
    "Skipped": "ldrf.units.unit",
    "Tried": "ldrf.result",
    "UnitReport": "ldrf.result",
    "analyze": "ldrf.pipeline",
    "export": "ldrf.saving.export",
    "find_energy": "ldrf.planning.energy",
    "finetune": "ldrf.finetuning.loop",
    "inspect": "ldrf.inspection",
    "load": "ldrf.saving.checkpoint",
    "load_result": "ldrf.saving.loaded_result",
    "mirrored": "ldrf.calibration.mirroring",
    "prune": "ldrf.pipeline",
    "prune_layer": "ldrf.reconstruction.single_layer",
    "quantize": "ldrf.deployment.int8",
    "register_operator": "ldrf.channels.operators",
    "save": "ldrf.saving.checkpoint",
    "ship": "ldrf.shipping.ship",
    "sweep": "ldrf.sweeping",
}


def __getattr__(name: str) -> Any:
    """Import a public name, or a module such as ``ldrf.errors``, at its first use (PEP 562)."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name.startswith("_"):
        raise AttributeError(f"module 'ldrf' has no attribute {name!r}")
    else:
        value = _module(name)
    globals()[name] = value
    return value


def _module(name: str) -> Any:
    try:
        return import_module(f"ldrf.{name}")
    except ModuleNotFoundError as problem:
        if problem.name != f"ldrf.{name}":
            raise
        raise AttributeError(f"module 'ldrf' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
