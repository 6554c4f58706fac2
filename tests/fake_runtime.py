"""A runtime whose clock is arithmetic: layers take what blocks of channels take, so that every plan can be checked."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ldrf.deployment.geometry import Piece
from ldrf.deployment.runtime import Prepared, Runtime
from ldrf.inputs import Inputs

STEP = 16  # channels that are computed at once
OVERHEAD = 1e-4  # seconds of a layer's call
REST = 5e-4  # seconds of a network outside of its layers
MAC = 1e-8  # seconds


def padded(channels: int, step: int = STEP) -> int:
    return -(-channels // step) * step


def layer_seconds(positions: int, kernel: int, inputs: int, outputs: int, groups: int, step: int = STEP) -> float:
    """What a layer takes with so many outputs of so many positions."""
    wide = padded(inputs, step) if groups == 1 else inputs // groups
    return OVERHEAD + MAC * positions * kernel * wide * padded(outputs, step)


def piece_seconds(piece: Piece, step: int = STEP) -> float:
    shape = piece.output_shape
    positions = math.prod(shape) // piece.outputs
    return layer_seconds(positions, math.prod(piece.geometry.kernel), piece.inputs, piece.outputs, piece.groups, step)


def network_seconds(model: nn.Module, inputs: Inputs, step: int = STEP) -> float:
    """What a whole network takes: its layers as they are called, and the rest."""
    spent = [REST]

    def note(layer: Any, given: tuple[Any, ...], made: torch.Tensor) -> None:
        outputs, inward, *kernel = layer.weight.shape
        groups = getattr(layer, "groups", 1)
        if groups > 1:
            groups = given[0].shape[1] // inward
        spent.append(layer_seconds(made.numel() // outputs, math.prod(kernel), inward * groups, outputs, groups, step))

    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    handles = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        inputs.call(model)
    for handle in handles:
        handle.remove()
    return sum(spent)


class FakeClock:
    """A clock that only moves when a network is called; ``noise`` gives the factor of each call."""

    def __init__(self, noise: Callable[[], float] = lambda: 1.0, step: int = STEP) -> None:
        self.now, self.noise, self.step = 0.0, noise, step
        self.pieces: list[Piece] = []

    def __call__(self) -> float:
        return self.now

    def prepare(self, model: nn.Module, inputs: Inputs, threads: int) -> Prepared:
        seconds = network_seconds(model, inputs, self.step) / threads

        def call() -> None:
            self.now += seconds * self.noise()

        return Prepared(call)

    def time_pieces(self, pieces: Sequence[Piece], threads: int, rounds: int) -> list[list[float]]:
        self.pieces += pieces
        return [[piece_seconds(p, self.step) / threads * self.noise() for _ in range(rounds)] for p in pieces]

    def runtime(self) -> Runtime:
        return Runtime(lambda: f"step {self.step}", "it is always there", self.prepare, self.time_pieces, self)
