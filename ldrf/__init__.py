"""ldrf makes a trained network several times cheaper without retraining it."""

from ldrf._version import __version__
from ldrf.calibration.mirroring import mirrored
from ldrf.channels.operators import Operator, register_operator
from ldrf.config import FinetuneConfig, PruneConfig
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.finetuning.loop import finetune
from ldrf.inspection import Inspection, inspect
from ldrf.pipeline import analyze, prune
from ldrf.planning.energy import EnergySearch, find_energy
from ldrf.planning.ranks import Analysis, LayerRank
from ldrf.reconstruction.single_layer import SingleLayer, prune_layer
from ldrf.result import FinetuneResult, PruneResult, UnitReport
from ldrf.saving.checkpoint import load, save
from ldrf.saving.export import Exported, export
from ldrf.units.unit import Skipped

__all__ = [
    "Analysis",
    "EnergySearch",
    "Exported",
    "FinetuneConfig",
    "FinetuneResult",
    "Inspection",
    "LayerRank",
    "LdrfError",
    "LdrfWarning",
    "Operator",
    "PruneConfig",
    "PruneResult",
    "SingleLayer",
    "Skipped",
    "UnitReport",
    "__version__",
    "analyze",
    "export",
    "find_energy",
    "finetune",
    "inspect",
    "load",
    "mirrored",
    "prune",
    "prune_layer",
    "register_operator",
    "save",
]
