"""How few dimensions carry a layer's information, and so how few neurons it may keep (Eqn. 5, Tab. 1).

A ReLU loses information unless its input is expanded, so a unit keeps more than z_l neurons: the range (z_l, n_l].
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.algebra.decomposition import decompose_with_data, matrix_of, rank_at
from ldrf.algebra.moments import Moments
from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.runtime.device import exact
from ldrf.runtime.tables import table
from ldrf.tracing.interpreter import read_tensor
from ldrf.tracing.trace import Layer
from ldrf.units.unit import Unit


@dataclass(frozen=True)
class LayerRank:
    """One row of Tab. 1: a layer's width, its low rank from the weight alone, and from its outputs on data."""

    name: str
    width: int
    rank: int
    data_rank: int | None
    prunable: bool

    @property
    def range(self) -> tuple[int, int]:
        """Valid numbers of neurons (z_l, n_l], both ends as the paper prints them."""
        return self.rank, self.width


@dataclass(frozen=True)
class Analysis:
    """Ranks of every conv and linear layer in forward order at one energy."""

    energy: float
    layers: tuple[LayerRank, ...]

    @property
    def ranks(self) -> dict[str, int]:
        return {row.name: row.rank for row in self.layers}

    @property
    def data_ranks(self) -> dict[str, int | None]:
        return {row.name: row.data_rank for row in self.layers}

    def as_dict(self) -> dict[str, Any]:
        return {"energy": self.energy, "ranks": self.ranks, "layers": [asdict(row) for row in self.layers]}

    def __str__(self) -> str:
        rows = [
            (
                r.name,
                r.width,
                r.rank,
                "" if r.data_rank is None else r.data_rank,
                f"({r.rank}, {r.width}]",
                "yes" if r.prunable else "no",
            )
            for r in self.layers
        ]
        energy = f"Ranks at energy {self.energy:g}; 'inspect' and 'prune' use {PruneConfig.energy:g} by default."
        return f"{energy}\n\n" + table(("layer", "neurons", "low rank", "rank on data", "range", "prunable"), rows)


def weight_spectrum(model: nn.Module, layer: Layer) -> Tensor:
    """Singular values of the layer's flattened weight, the largest first [min(d, n)]."""
    weight = exact(read_tensor(model, layer.weight).detach())
    matrix = matrix_of(weight.transpose(0, 1) if layer.is_transposed else weight)
    # The eigenvalues of the smaller product are ten times as cheap; in double precision the roots are exact to 1e-8.
    small = matrix.T @ matrix if matrix.shape[0] > matrix.shape[1] else matrix @ matrix.T
    return torch.linalg.eigvalsh(small).clamp_min(0).sqrt().flip(0).cpu()


def rank_layers(network: Network, inputs: dict[str, Moments], energy: float) -> Analysis:
    """One row per layer: rank of the weight, and rank of the layer's outputs on data (Eqn. 5)."""
    prunable = {unit.name for unit in network.units}
    rows: dict[str, LayerRank] = {}
    for layer in network.trace.layers:
        on_data = None
        if layer.node in inputs:
            weight, bias = network.dense.layer(layer.node)
            seen = inputs[layer.node].to(weight.device)
            on_data = rank_at(decompose_with_data(weight, bias, seen).spectrum, energy)
        rank = rank_at(weight_spectrum(network.model, layer), energy)
        rows[layer.name] = LayerRank(layer.name, layer.outputs, rank, on_data, layer.name in prunable)
    return Analysis(energy, tuple(rows.values()))


def unit_spectra(model: nn.Module, units: tuple[Unit, ...]) -> dict[str, Tensor]:
    """Singular values of every unit's producing weight, the largest first."""
    return {unit.name: weight_spectrum(model, unit.producer) for unit in units}


def unit_ranks(units: tuple[Unit, ...], spectra: dict[str, Tensor], energy: float) -> dict[str, int]:
    """z_l of every unit: the low rank of its producer's weight, in neurons where these are several outputs each."""
    ranks = {}
    for unit in units:
        rank = rank_at(spectra[unit.name], energy)
        ranks[unit.name] = min(-(-rank * unit.width // unit.producer.outputs), unit.width)
    return ranks
