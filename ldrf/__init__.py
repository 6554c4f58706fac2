"""ldrf makes a trained network several times cheaper without retraining it."""

from ldrf._version import __version__
from ldrf.checkpoint import load, save
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.pipeline import analyze, prune
from ldrf.ranks import Analysis, LayerRank
from ldrf.result import PruneResult, UnitReport
from ldrf.units import Skipped

__all__ = [
    "Analysis",
    "LayerRank",
    "LdrfError",
    "LdrfWarning",
    "PruneConfig",
    "PruneResult",
    "Skipped",
    "UnitReport",
    "__version__",
    "analyze",
    "load",
    "prune",
    "save",
]
