"""A look at the clock after a cut by MACs: few calls in eager torch, enough to see a gain that is not there."""

import warnings

import torch
from torch import nn

from ldrf.deployment.stopwatch import clock_for
from ldrf.errors import LdrfWarning
from ldrf.inputs import Inputs
from ldrf.runtime.device import model_device
from ldrf.tracing.export import working_copy

CALLS = 3  # of each network, in turns; the fastest counts
SHORT = 0.005  # seconds of the dense network below which its call takes longer than its work
FAR = 0.6  # share of the promised gain below which a warning is due


def warn_of_small_gain(dense: nn.Module, slim: nn.Module, example: Inputs, promised: float) -> None:
    """Say so where the slim network is far slower than ``promised``, its ratio of MACs; on the CPU only."""
    if model_device(dense).type != "cpu":
        return
    networks = [working_copy(dense), working_copy(slim)]
    seconds: list[list[float]] = [[], []]
    clock = clock_for(torch.get_num_threads())
    with torch.inference_mode():
        for turn in range(1 + CALLS):
            for network, times in zip(networks, seconds, strict=True):
                began = clock()
                example.call(network)
                times.append(clock() - began)
            if turn == 0 and seconds[0][0] < SHORT:
                return
    gain = min(seconds[0][1:]) / min(seconds[1][1:])
    if gain < FAR * promised:
        warnings.warn(
            f"The slim network has {promised:.2f} times fewer MACs, but is {gain:.2f} times as fast as the dense one "
            f"in torch ({example.rows} examples, {torch.get_num_threads()} threads): ask for time itself with latency= "
            "(--latency).",
            LdrfWarning,
            stacklevel=3,
        )
