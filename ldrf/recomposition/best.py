"""The promise: on held-out images the slim network is no further from the dense one than plain cutting would be.

Each unit is judged by the outputs of its own consumers. Whether all units together serve the network's outputs is
another question, and the whole network is judged by it here.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Literal

from ldrf.calibration.network import Network
from ldrf.errors import LdrfWarning
from ldrf.reconstruction.held_out import held_out_errors
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.tracing.interpreter import Weights
from ldrf.units.branches import without
from ldrf.units.indices import Kept, cut_weights


@dataclass(frozen=True)
class HeldOut:
    """Squared error of the outputs on held-out images, relative to their power: cut plainly, and reconstructed.

    All of these networks have the same neurons; ``returned`` says which is handed out. ``reconstructed`` is the better
    of the solution unit by unit and that of all units together, which starts from it.
    """

    cut: float
    unit_by_unit: float
    reconstructed: float
    returned: Literal["reconstructed", "cut"]


@dataclass(frozen=True)
class Chosen:
    """The weights to recompose, the layers among them that are not just cut, and how they were judged."""

    weights: Weights
    changed: set[str]
    held_out: HeldOut | None


def choose(network: Network, walk: Lockstep, kept: Kept, judged: bool, together: Weights | None = None) -> Chosen:
    """The weights nearest to the dense network: solved unit by unit, solved ``together``, or plainly cut.

    A rival method is not ``judged``: its own weights are kept.
    """
    if not judged or not walk.diverged:
        return Chosen(walk.slim, walk.changed, None)
    gone = [branch for branch in network.branches if branch.end in walk.slim.constants]
    dense, moved = without(network.dense, gone), together or walk.slim
    plain = cut_weights(network.trace, network.units, dense, kept)
    cut, alone, *more = held_out_errors(network, (plain, walk.slim, *([together] if together else [])))
    error = more[0] if more else alone
    if not error < alone:
        moved, error = walk.slim, alone
    if math.isfinite(error) and not error > cut:
        return Chosen(moved, walk.changed, HeldOut(cut, alone, error, "reconstructed"))
    warnings.warn(
        f"On the held-out images plain cutting does better than reconstruction (error {cut:.3g} against {error:.3g}), "
        "so the plainly cut network is returned: more calibration images may help.",
        LdrfWarning,
        stacklevel=3,
    )
    return Chosen(plain, set(), HeldOut(cut, alone, error, "cut"))
