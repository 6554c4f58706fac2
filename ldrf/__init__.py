"""ldrf makes a trained network several times cheaper without retraining it."""

from ldrf._version import __version__
from ldrf.checkpoint import load, save
from ldrf.config import FinetuneConfig, PruneConfig
from ldrf.energy import EnergySearch, find_energy
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.exporting import Exported, export
from ldrf.finetuning import finetune
from ldrf.inspection import Inspection, inspect
from ldrf.mirroring import mirrored
from ldrf.pipeline import analyze, prune
from ldrf.ranks import Analysis, LayerRank
from ldrf.result import FinetuneResult, PruneResult, UnitReport
from ldrf.single_layer import SingleLayer, prune_layer
from ldrf.units import Skipped

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
    "save",
]
