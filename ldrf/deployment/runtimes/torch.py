"""Eager PyTorch on the CPU, norms folded, channels last where that is faster."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ldrf.deployment.folding import folded_copy
from ldrf.deployment.geometry import Piece
from ldrf.deployment.piece_module import PieceModule, piece_inputs
from ldrf.deployment.runtime import Prepared, Runtime
from ldrf.deployment.stopwatch import clock_for, torch_threads
from ldrf.inputs import Inputs
from ldrf.runtime.layout import arranged, lay_out, layout_for

TRIALS = 3  # calls of a network in each layout


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Prepared:
    """The folded network in the layout in which it is faster."""
    folded = folded_copy(model, inputs)
    with torch_threads(threads), torch.inference_mode():
        layout = faster_layout(folded, inputs, threads)
    lay_out(folded, layout)
    given = arranged(inputs, layout)
    return Prepared(lambda: given.call(folded))


def faster_layout(model: nn.Module, inputs: Inputs, threads: int) -> torch.memory_format:
    """Channels last if the network takes it and is faster so, else torch's usual order."""
    if layout_for(model, inputs) == torch.contiguous_format:
        return torch.contiguous_format
    seconds = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        lay_out(model, layout)
        given = arranged(inputs, layout)
        seconds[layout] = min(_seconds(lambda given=given: given.call(model), threads) for _ in range(TRIALS))
    return min(seconds, key=lambda layout: seconds[layout])


def time_pieces(pieces: Sequence[Piece], threads: int, rounds: int) -> list[list[float]]:
    """Seconds of each piece in each round, channels last."""
    with torch_threads(threads), torch.inference_mode():
        calls = [_call(piece) for piece in pieces]
        for call in calls:
            call()
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(rounds):
            for call, seconds in zip(calls, times, strict=True):
                seconds.append(_seconds(call, threads))
    return times


def _call(piece: Piece) -> Callable[[], Any]:
    module, given = PieceModule(piece), piece_inputs(piece)
    if len(piece.geometry.kernel) == 2:
        lay_out(module, torch.channels_last)
        given = [t.contiguous(memory_format=torch.channels_last) for t in given]
    return lambda: module(*given)


def _seconds(call: Callable[[], Any], threads: int) -> float:
    clock = clock_for(threads)
    began = clock()
    call()
    return clock() - began


ENTRY = Runtime(lambda: torch.__version__, "install PyTorch", prepare, time_pieces)
