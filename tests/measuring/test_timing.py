"""Calls are timed in turns, and every layer on the input it really gets."""

import time

from networks import CalledTwice, Chain, Mlp, images, make
from torch import Tensor
from torch.utils.benchmark import Measurement, TaskSpec

from ldrf.inputs import Inputs
from ldrf.measuring.timing import ROUNDS, LayerTiming, _merged, latency_ratio, take_turns, time_layers
from ldrf.tracing.counting import count_macs

QUICK = 0.003
INPUTS = Inputs((images(2),), {})


def test_calls_take_turns():
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: (order.append("b"), time.sleep(0.002))}
    times = take_turns(calls, 1, QUICK)
    turns = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert turns == ["a", "b"] * ROUNDS
    assert times["b"].median >= 0.002 > times["a"].median


def test_rounds_of_other_block_sizes_count_by_call():
    task = TaskSpec("call()", "")
    parts = [Measurement(number_per_run=10, raw_times=[20.0, 40.0], task_spec=task)]
    parts += [Measurement(number_per_run=2, raw_times=[6.0], task_spec=task)]
    assert sorted(_merged(parts).times) == [2.0, 3.0, 4.0]


def test_what_is_lost_is_time_beyond_the_macs():
    layer = LayerTiming("conv", (400, 100), (8.0, 4.0))
    assert (layer.theory, layer.measured, layer.lost) == (4.0, 2.0, 2.0)


def test_a_layer_called_twice_counts_twice():
    model = make(CalledTwice)
    layers = time_layers({"dense": model, "slim": model}, INPUTS, 1, QUICK)
    assert {x.name: x.macs[0] for x in layers}["inner"] == 2 * 12 * 12


def test_layers_of_both_networks_are_timed_and_hooks_are_gone(pruned):
    dense, slim = make(Chain), pruned(Chain).model
    layers = time_layers({"dense": dense, "slim": slim}, INPUTS, 1, QUICK)
    assert [sum(x.macs[side] for x in layers) for side in (0, 1)] == [count_macs(m, INPUTS) for m in (dense, slim)]
    assert all(t > 0 for x in layers for t in x.milliseconds)
    assert not any(module._forward_hooks for model in (dense, slim) for module in model.modules())


class Slow(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.02)
        return super().forward(x)


def test_latency_is_the_time_of_one_call():
    milliseconds = latency_ratio(make(Slow), make(Mlp), INPUTS, seconds=QUICK)
    assert milliseconds["dense"] >= 20 and 0 < milliseconds["slim"] < milliseconds["dense"]
