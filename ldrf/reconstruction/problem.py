"""One unit's reconstruction as a problem: its data, the way from its neurons to its consumers, and its loss."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, fx

from ldrf.algebra.large_rows import row_factors
from ldrf.calibration.store import Key, Role
from ldrf.reconstruction.lockstep import Lockstep, path_between, side_inputs
from ldrf.reconstruction.metric import distance, measured
from ldrf.runtime.allocator import give_back
from ldrf.runtime.device import forward_precision
from ldrf.runtime.processes import sum_over
from ldrf.tracing.interpreter import Weights, run
from ldrf.tracing.layer import apply_affine
from ldrf.tracing.lean_run import Values
from ldrf.tracing.operations import source_of
from ldrf.tracing.patches import output_rows
from ldrf.tracing.trace import Layer, Trace
from ldrf.units.columns import reader_columns
from ldrf.units.indices import covering, cut_to, masks, places
from ldrf.units.unit import Consumer, Unit

BEHIND = 0.7  # share of the loss taken behind the next activation
Affine = Mapping[str, tuple[Tensor, Tensor]]  # layer node -> weight and bias


@dataclass(frozen=True)
class Problem:
    """One unit's reconstruction: where its data lies and how its neurons reach its consumers."""

    trace: Trace
    unit: Unit
    kept: Tensor
    walk: Lockstep
    path: tuple[fx.Node, ...]
    carriers: Weights  # slim weights with the path's per-channel tensors cut to ``kept``
    metrics: tuple[Tensor, ...]  # per consumer: in which coordinates its outputs are compared, see ``metric.py``

    @property
    def outputs(self) -> Tensor:
        """Outputs of the producer that stay."""
        return places(self.unit.neuron_of_output, self.kept)

    @property
    def columns(self) -> list[Tensor]:
        """Per consumer: columns of its flattened weight that stay."""
        return [reader_columns(c, self.kept) for c in self.unit.consumers]

    @cached_property
    def partners(self) -> tuple[Layer, ...]:
        """Layers whose outputs multiply the producer's, so that their weights are free to move with its own."""
        read = side_inputs(self.path, self.unit, self.trace)
        consumers = {consumer.layer.node for consumer in self.unit.consumers}
        free = () if self.unit.coupled else self.unit.partners
        return tuple(p for p in free if p.groups == 1 and p.result in read and p.node not in consumers)

    def stored(self, chunk: int, role: Role, name: str = "") -> Tensor:
        """What :func:`collect` stored of a chunk."""
        return self.walk.store.get(Key("unit", chunk, role, name))


def cut_carriers(trace: Trace, unit: Unit, weights: Weights, kept: Tensor) -> Weights:
    """Weights whose tensors on the unit's path are cut to the kept neurons."""
    return cut_to(trace, weights, masks(unit.slices, kept))


@contextmanager
def open_problem(walk: Lockstep, unit: Unit, metrics: Mapping[str, Tensor]) -> Iterator[Problem]:
    """A unit's problem with all its neurons kept and its data collected; the data is dropped at the end."""
    path, device = path_between(walk.trace, unit), walk.slim.device
    own = tuple(_rest(metrics[c.goal].to(device), -1, c.outputs) for c in unit.consumers)
    problem = Problem(walk.trace, unit, torch.arange(unit.width), walk, path, walk.slim, own)
    collect(problem)
    try:
        yield problem
    finally:
        walk.store.drop_all("unit")
        for chunk in walk.calibration.own():
            walk.small.pop(("unit", chunk), None)


def narrowed(problem: Problem, kept: Tensor) -> Problem:
    """The same problem with only the ``kept`` neurons, or with as many others where a layer would be left with none."""
    kept = covering(problem.unit, kept)
    carriers = cut_carriers(problem.trace, problem.unit, problem.walk.slim, kept)
    consumers = tuple(_cut_outputs(problem.unit, c, kept) for c in problem.unit.consumers)
    metrics = tuple(_rest(m, -1, c.outputs_now) for m, c in zip(problem.metrics, consumers, strict=True))
    unit = replace(problem.unit, consumers=consumers)
    return replace(problem, unit=unit, kept=kept, carriers=carriers, metrics=metrics)


def _cut_outputs(unit: Unit, consumer: Consumer, kept: Tensor) -> Consumer:
    """The consumer; where its outputs are neurons of the unit, too, as on a residual stream, it loses some of them."""
    layer = consumer.layer
    neurons = next((s.ids for s in unit.slices if (s.tensor, s.dim) == (layer.weight, layer.row_dim)), None)
    if neurons is None or len(kept) == unit.width:
        return consumer
    left = places(neurons, kept).numpy()
    return replace(consumer, layer=replace(layer, outputs=len(left)), outputs_now=left)


def _rest(value: Tensor, dim: int, outputs: np.ndarray | None) -> Tensor:
    """A value with only those ``outputs`` that are left along ``dim``, or with all of them."""
    return value if outputs is None else value.index_select(dim, torch.as_tensor(outputs).to(value.device))


@torch.no_grad()
def collect(problem: Problem) -> None:
    """Store per chunk the producer's slim input, the consumers' targets and whatever else the path reads."""
    walk, unit, trace = problem.walk, problem.unit, problem.trace
    side = side_inputs(problem.path, unit, trace) - walk.slim.idle
    end = _slim_end(problem, side)
    for chunk in walk.store.in_turn(walk.calibration.own(), "dense", "slim"):
        give_back(chunk)
        dense = walk.segment("dense", chunk, unit.end)
        slim = walk.segment("slim", chunk, end) if walk.diverged else dense
        walk.store.put(Key("unit", chunk, "input"), slim[source(unit.producer, trace)])
        for layer in problem.partners:
            walk.store.put(Key("unit", chunk, "partner input", layer.node), slim[source(layer, trace)])
        for i, consumer in enumerate(unit.consumers):
            goal = _rest(dense[consumer.goal], consumer.layer.channel_dim, consumer.outputs)
            walk.keep_ahead(chunk, consumer.goal, dense[consumer.goal])
            walk.store.put(Key("unit", chunk, "goal", str(i)), goal)
            factors = row_factors(goal, consumer.layer.channel_dim)
            if factors is not None:
                walk.store.put(Key("unit", chunk, "factors", str(i)), factors)
            if consumer.other:
                walk.store.put(Key("unit", chunk, "shortcut", str(i)), slim[consumer.other])
        for name in side:
            if isinstance(slim[name], Tensor):
                walk.store.put(Key("unit", chunk, "side", name), slim[name])
            else:
                walk.small["unit", chunk] = {**walk.small.get(("unit", chunk), {}), name: slim[name]}


def _slim_end(problem: Problem, side: set[str]) -> int:
    """The last position whose slim value is wanted: in a plain chain the producer's input, before the frontier."""
    sources = {source(layer, problem.trace) for layer in (problem.unit.producer, *problem.partners)}
    wanted = side | sources | {c.other for c in problem.unit.consumers if c.other}
    return max((i for i, node in enumerate(problem.trace.nodes) if node.name in wanted), default=-1)


def _of_consumer(problem: Problem, chunk: int, role: Role, i: int) -> Tensor:
    """The goal of consumer ``i``, or the shortcut its output is added to, for the outputs that are left."""
    consumer = problem.unit.consumers[i]
    return _rest(problem.stored(chunk, role, str(i)), consumer.layer.channel_dim, consumer.outputs_now)


def target(problem: Problem, chunk: int, i: int) -> Tensor:
    """What consumer ``i`` should give: its dense output, or the dense sum minus the slim shortcut."""
    goal = _of_consumer(problem, chunk, "goal", i)
    return goal if problem.unit.consumers[i].other is None else goal - _of_consumer(problem, chunk, "shortcut", i)


def factors_of(problem: Problem, chunk: int, i: int) -> Tensor | None:
    """What the rows of consumer ``i`` are scaled by, where some of its goals are far larger than the others."""
    known = problem.walk.store.keys("unit", chunk, "factors").get(str(i))
    return None if known is None else problem.walk.store.get(known)


def unit_loss(problem: Problem, chunk: int, outputs: list[Tensor]) -> Tensor:
    """Squared distance of the consumers' outputs to their goals in the unit's metric, summed over a chunk.

    Where outputs are compared one by one, a share of it is taken behind the activation that follows: what a ReLU
    hides does not count there.
    """
    total = torch.zeros((), device=problem.walk.slim.device)
    for i, (consumer, y) in enumerate(zip(problem.unit.consumers, outputs, strict=True)):
        goal = _of_consumer(problem, chunk, "goal", i)
        value = y if consumer.other is None else y + _of_consumer(problem, chunk, "shortcut", i)
        metric, dim, factors = problem.metrics[i], consumer.layer.channel_dim, factors_of(problem, chunk, i)
        behind = BEHIND if consumer.activation and metric.ndim == 1 else 0.0
        total = total + (1 - behind) * distance(value, goal, metric, dim, factors)
        if behind:
            mine, theirs = (activated(problem.trace, consumer.activation or "", v) for v in (value, goal))
            total = total + behind * distance(mine, theirs, metric, dim, factors)
    return total


def activated(trace: Trace, activation: str, value: Tensor) -> Tensor:
    """What the named activation makes of a value."""
    node = trace.node(activation)
    return run(trace, Weights({}, {}, value.device), (node,), {node.all_input_nodes[0].name: value})[activation]


def neurons(problem: Problem, chunk: int, weight: Tensor, bias: Tensor, partners: Affine | None = None) -> Values:
    """Values on the path for one chunk, from the producer's input to the consumers' inputs.

    ``partners`` are slim weights of the layers that meet the producer. The outputs of other partners are only cut.
    """
    producer = problem.unit.producer
    with precision_of(problem):
        made = {producer.node: apply_affine(producer, problem.stored(chunk, "input"), weight, bias)}
        for layer in problem.partners if partners else ():
            x = problem.stored(chunk, "partner input", layer.node)
            made[layer.node] = apply_affine(layer, x, *(partners or {})[layer.node])
    return carry(problem, chunk, made)


def precision_of(problem: Problem) -> AbstractContextManager[None]:
    """Within, layers run in the precision of the slim network."""
    return forward_precision(problem.carriers.device, problem.carriers.precision)


def carry(problem: Problem, chunk: int, made: Mapping[str, Tensor]) -> Values:
    """Values on the path from the outputs of its first layers, which are given by node."""
    walk, unit = problem.walk, problem.unit
    values: Values = dict(walk.small.get(("unit", chunk), {}))
    values |= {name: walk.store.get(key) for name, key in walk.store.keys("unit", chunk, "side").items()}
    for partner in unit.partners:
        if partner.result in values and partner.node not in made:
            left = partner_outputs(problem, partner)
            whole = values[partner.result]
            values[partner.result] = whole.index_select(partner.channel_dim, left.to(whole.device))
    for layer in (unit.producer, *unit.partners):
        if layer.node in made:
            values[layer.node] = values[layer.result] = made[layer.node]
    return run(problem.trace, problem.carriers, problem.path, values)


def kept_outputs(problem: Problem) -> dict[str, Tensor]:
    """Outputs that stay, of the producer and of the partners whose weights are free, by node."""
    partners = {layer.node: partner_outputs(problem, layer) for layer in problem.partners}
    return {problem.unit.producer.node: problem.outputs, **partners}


def partner_outputs(problem: Problem, partner: Layer) -> Tensor:
    """Outputs of a partner that stay."""
    key = partner.weight, partner.row_dim
    return places(next(s.ids for s in problem.unit.slices if (s.tensor, s.dim) == key), problem.kept)


def source(layer: Layer, trace: Trace) -> str:
    """The name of the value a layer reads."""
    return source_of(trace.node(layer.node))


def goal_power(problem: Problem, chunk: int) -> float:
    """Sum of squares of the targets of one chunk about their mean over all processes, in the unit's metric."""
    total, own = 0.0, problem.walk.calibration.own([chunk])
    for i, metric in enumerate(problem.metrics):
        # Rows, the sum of their squares by way of the spread about this process's own mean, and their sum.
        sums = torch.zeros(2 + len(metric), dtype=torch.float64)
        if own:
            wanted, factors = target(problem, chunk, i), factors_of(problem, chunk, i)
            wanted = wanted if factors is None else wanted * factors
            rows = output_rows(problem.unit.consumers[i].layer, wanted, None).float()
            mean = rows.mean(0)
            middle = measured(mean, metric, -1).cpu().double()
            spread = float(measured(rows - mean, metric, -1).square().sum())
            sums[0], sums[1] = len(rows), spread + len(rows) * float(middle.square().sum())
            sums[2:] = len(rows) * middle
        sums = sum_over(sums)
        total += float(sums[1] - sums[2:].square().sum() / sums[0])
    return max(total, 0.0)


def read(problem: Problem, consumer: Consumer, x: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """A consumer's output from its inputs and its matrix [d', o]."""
    layer = consumer.layer
    with precision_of(problem):
        return apply_affine(layer, x, matrix.T.reshape(matrix.shape[1], -1, *layer.kernel), bias)
