"""Solve R' and Q' of one unit so that the next embedding comes out as before (Eqn. 6, Alg. 1 stage 2).

The producer's weight W'_l = Q'_{l-1} R'_l on the slim network's own inputs makes the n' neurons that stay, Q'_l are
the consumers' weights on them. Q' has a closed form; both are then descended together, Q' is solved once more,
and what did best on held-out images is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ldrf.algebra.descent import Scaled, descend
from ldrf.algebra.moments import Moments, RowSums, least_squares_at
from ldrf.calibration.survey import sampled
from ldrf.channels.attention_scores import rotated_layers
from ldrf.config import PruneConfig
from ldrf.reconstruction.l1_mask import mask_unit
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.low_rank import linear_parts, low_rank_solution, score_sums
from ldrf.reconstruction.problem import (
    Affine,
    Problem,
    cut_carriers,
    goal_power,
    made_rows,
    narrowed,
    neurons,
    open_problem,
    read,
    source,
    target,
    unit_loss,
)
from ldrf.runtime.processes import no_loss, sum_number, summed_gradients
from ldrf.tracing.patches import COLUMNS, count_columns, input_rows, output_rows
from ldrf.tracing.trace import Layer
from ldrf.units.unit import Unit

DAMPINGS = (1, 30, 900)  # multiples of the configured damping tried where rows are few


@dataclass(frozen=True)
class Solution:
    """The producer's slim weight and bias [n', ...], and per consumer a matrix [d' + 1, o] with the bias last.

    ``partners`` are weights and biases of layers that meet the producer; those that are not there are only cut.
    """

    weight: Tensor
    bias: Tensor
    readers: tuple[Tensor, ...]
    partners: Affine = field(default_factory=dict)


@dataclass(frozen=True)
class Reconstruction:
    """The neurons and the solution kept for a unit, and its held-out errors relative to the variance of the target."""

    kept: Tensor
    solution: Solution
    cut_error: float
    error: float
    way: str  # which of the candidates won
    candidates: dict[str, float]


def reconstruct(
    walk: Lockstep, unit: Unit, kept: Tensor, metrics: Mapping[str, Tensor], config: PruneConfig
) -> Reconstruction:
    """Find the unit's R' and Q' on the calibration data of ``walk``, whose frontier stands at its producer.

    ``metrics`` gives, by node, the coordinates in which a consumer's outputs are compared.
    """
    with open_problem(walk, unit, metrics) as problem:
        if config.solver == "l1-mask" and len(kept) < unit.width and _has_own_mask(unit):
            lambdas = {"lambda_1": config.lambda_1, "lambda_2": config.lambda_2}
            kept = mask_unit(problem, len(kept), config, config.seed, **lambdas)
        return _solve(narrowed(problem, kept), config)


def _has_own_mask(unit: Unit) -> bool:
    """Whether Eqn. 4's mask applies: one layer makes the neurons, and its consumers read nothing else."""
    alone = not unit.partners and unit.width == unit.producer.outputs
    return alone and all((c.channels >= 0).all() for c in unit.consumers)


def _solve(problem: Problem, config: PruneConfig) -> Reconstruction:
    start = cut_solution(problem)
    found: dict[str, Solution] = {"cut": start}
    errors: dict[str, float] = {"cut": held_out_error(problem, start)}

    def consider(name: str, solution: Solution) -> None:
        found[name], errors[name] = solution, held_out_error(problem, solution)

    if config.solver != "none":
        consider("closed form", refitted(problem, start, config))
        exact = _by_svd(problem, start)
        if exact is not None:
            consider("svd", exact)
            consider("svd, closed form", refitted(problem, exact, config))
    # The layers of a residual stream stand far apart: they are only cut, and what they give is taken as it comes.
    if config.solver in ("joint", "l1-mask") and config.steps and len(problem.partners) == len(problem.unit.partners):
        consider("descent", _descend(problem, found[min(errors, key=errors.__getitem__)], config))
        consider("descent, closed form", refitted(problem, found["descent"], config))
    best = min(errors, key=errors.__getitem__)
    return Reconstruction(problem.kept, found[best], errors["cut"], errors[best], best, errors)


def _by_svd(problem: Problem, cut: Solution) -> Solution | None:
    """What the SVD of products of two weights gives: of queries and keys, of values and what reads them; or None."""
    scores, parts, found = problem.unit.compared, linear_parts(problem), cut
    rows = made_rows(problem)
    if scores is not None and rows.keys() >= set(scores.layers):
        whole = rotated_layers(problem.walk.slim, scores, score_sums(problem, scores), problem.kept, shrinks=True)
        own = {node: tuple(t[rows[node]] for t in affine) for node, affine in whole.items()}
        weight, bias = own.pop(problem.unit.producer.node, (cut.weight, cut.bias))
        found = replace(cut, weight=weight, bias=bias, partners={**cut.partners, **own})
    if parts is not None:
        weight, bias, readers = low_rank_solution(problem, parts, (found.weight, found.bias, found.readers))
        found = replace(found, weight=weight, bias=bias, readers=readers)
    return None if found is cut else found


def refitted(problem: Problem, solution: Solution, config: PruneConfig) -> Solution:
    """The same neurons, with the consumers solved in closed form.

    Where rows are few, held-out rows choose the damping of each.
    """
    made = solution.weight, solution.bias, config.seed, solution.partners
    fit = moments_on(problem, False, *made)
    few = [m.rows < 40 * len(reader) for m, reader in zip(fit, solution.readers, strict=True)]
    judge = moments_on(problem, True, *made) if any(few) else fit
    readers = []
    for i, consumer in enumerate(problem.unit.consumers):
        levels = [config.damping * level for level in (DAMPINGS if few[i] else DAMPINGS[:1])]
        tried = least_squares_at(fit[i], solution.readers[i], levels, consumer.layer.has_bias)
        readers.append(min(tried, key=judge[i].error) if few[i] else next(tried))
    return replace(solution, readers=tuple(readers))


def cut_solution(problem: Problem) -> Solution:
    """Plain cutting: R' picks the kept neurons, Q' are the consumers' current weights on them."""
    readers = []
    for consumer, columns in zip(problem.unit.consumers, problem.columns, strict=True):
        weight, constant = problem.walk.slim.affine(consumer.layer.node)
        if consumer.outputs_now is not None:
            left = torch.as_tensor(consumer.outputs_now)
            weight, constant = weight[left], constant[left]
        readers.append(torch.cat([weight.flatten(1)[:, columns].T, constant[None]]).double())
    layers = _cut_layers(problem)
    weight, bias = layers.pop(problem.unit.producer.node)
    return Solution(weight, bias, tuple(readers), layers)


def _cut_layers(problem: Problem) -> dict[str, tuple[Tensor, Tensor]]:
    """Producer and partners without the neurons that go; queries make up for scores divided by a smaller root."""
    unit, found = problem.unit, {}
    for node, own in made_rows(problem).items():
        weight, bias = problem.walk.slim.affine(node)
        factor = torch.ones(len(weight))
        if unit.compared and unit.compared.heads and unit.compared.rescales and node == unit.compared.layers[0]:
            factor[unit.compared.heads[0].flatten()] = (len(problem.kept) / unit.width) ** 0.5
        found[node] = weight[own] * factor[own].view(-1, *[1] * (weight.ndim - 1)), bias[own] * factor[own]
    return found


@torch.no_grad()
def moments_on(
    problem: Problem, held_out: bool, weight: Tensor, bias: Tensor, seed: int, partners: Affine | None = None
) -> list[Moments]:
    """Sums over sampled rows for each consumer, on the held-out chunks or on the others."""
    unit, calibration = problem.unit, problem.walk.calibration
    sums = [RowSums(len(columns), c.layer.outputs) for c, columns in zip(unit.consumers, problem.columns, strict=True)]
    sources = [source(c.layer, problem.trace) for c in unit.consumers]
    for chunk in calibration.own():
        if (chunk in calibration.held_out) is not held_out:
            continue
        values = neurons(problem, chunk, weight, bias, partners)
        for i, consumer in enumerate(unit.consumers):
            x, layer = values[sources[i]], consumer.layer
            picked = sampled(layer, x, calibration, chunk, len(problem.columns[i]), seed)
            sums[i].add(input_rows(layer, x, picked), output_rows(layer, target(problem, chunk, i), picked))
    return [s.moments().over_processes() for s in sums]


@torch.no_grad()
def held_out_error(problem: Problem, solution: Solution) -> float:
    """Held-out loss of a solution, relative to the power of its goals."""
    unit, calibration = problem.unit, problem.walk.calibration
    loss = 0.0
    for chunk in calibration.own(sorted(calibration.held_out)):
        values = neurons(problem, chunk, solution.weight, solution.bias, solution.partners)
        outputs = [
            read(c, values[source(c.layer, problem.trace)], reader[:-1].float(), reader[-1].float())
            for c, reader in zip(unit.consumers, solution.readers, strict=True)
        ]
        loss += float(unit_loss(problem, chunk, outputs))
    power = sum(goal_power(problem, chunk) for chunk in sorted(calibration.held_out))
    return sum_number(loss) / (power + 1e-30)


def _descend(problem: Problem, start: Solution, config: PruneConfig) -> Solution:
    """Adam on R' and Q' together; biases move where their layers can add a constant."""
    unit, calibration = problem.unit, problem.walk.calibration
    weight, bias = Scaled(start.weight), Scaled(start.bias)
    weights = [Scaled(r[:-1].float()) for r in start.readers]
    biases = [Scaled(r[-1].float()) for r in start.readers]
    partners = {node: (Scaled(w), Scaled(b)) for node, (w, b) in start.partners.items()}
    layers = (unit.producer, *problem.partners, *(c.layer for c in unit.consumers))
    constants = (bias, *(partners[layer.node][1] for layer in problem.partners), *biases)
    free = [b for b, layer in zip(constants, layers, strict=True) if layer.has_bias]
    moved = lambda: {node: (w(), b()) for node, (w, b) in partners.items()}  # noqa: E731
    first = calibration.fitting[0]
    power = goal_power(problem, first) / calibration.sizes[first] + 1e-30

    every = [weight, bias, *weights, *biases, *(tensor for pair in partners.values() for tensor in pair)]
    count = len(weights)

    def losses(chunk: int) -> list[Tensor]:
        tensors = summed_gradients(*(tensor() for tensor in every))
        if not calibration.own([chunk]):
            return [no_loss(tensors)]
        met = tensors[2 + 2 * count :]
        pairs = dict(zip(partners, zip(met[::2], met[1::2], strict=True), strict=True))
        values = neurons(problem, chunk, tensors[0], tensors[1], pairs)
        solved = zip(unit.consumers, tensors[2 : 2 + count], tensors[2 + count : 2 + 2 * count], strict=True)
        outputs = [read(c, values[source(c.layer, problem.trace)], matrix, b) for c, matrix, b in solved]
        return [unit_loss(problem, chunk, outputs) / calibration.sizes[chunk] / power]

    descend(
        [weight, *(w for w, _ in partners.values()), *weights, *free],
        losses,
        calibration.fitting,
        config.steps,
        config.rate,
        config.seed,
    )
    with torch.no_grad():
        readers = tuple(torch.cat([w(), b()[None]]).double() for w, b in zip(weights, biases, strict=True))
        return Solution(weight().detach(), bias().detach(), readers, moved())


def commit_solution(walk: Lockstep, unit: Unit, kept: Tensor, solution: Solution) -> None:
    """Write a unit's solution into the slim weights: W'_l for the producer, Q'_l for its consumers."""
    slim = cut_carriers(walk.trace, unit, walk.slim, kept)
    # In a layout of its own: a solution read back from the journal must compute the same bits.
    plain = lambda t: t.clone(memory_format=torch.contiguous_format)  # noqa: E731
    affine = {unit.producer.node: (solution.weight, solution.bias), **solution.partners}
    changed = {node: (plain(weight), plain(bias)) for node, (weight, bias) in affine.items()}
    for consumer, reader in zip(unit.consumers, solution.readers, strict=True):
        layer = consumer.layer
        weight = reader[:-1].T.float().reshape(reader.shape[1], -1, *layer.kernel)
        changed[layer.node] = (plain(weight), plain(reader[-1].float()))
    walk.commit(slim.with_layers(changed))


@torch.no_grad()
def refit_outputs(walk: Lockstep, units: tuple[Unit, ...], protected: frozenset[str], config: PruneConfig) -> None:
    """Refit layers that give the model's outputs and read no cut unit themselves (Alg. 1, the line after the loop).

    Without labels the loss is the distance to the dense outputs; the layer changes only if held-out rows gain.
    """
    readers = {c.layer.node for u in units for c in u.consumers}
    if not walk.diverged or config.solver == "none":
        return
    for layer in walk.trace.layers:
        position, alone = walk.trace.index(layer.node), walk.trace.called.get(layer.weight, 1) == 1
        if layer.result not in walk.trace.outputs or layer.node in readers or layer.name in protected:
            continue
        if position >= walk.at and layer.groups == 1 and alone and count_columns(layer) <= COLUMNS:
            walk.advance(position)
            _refit(walk, layer, config)


def _refit(walk: Lockstep, layer: Layer, config: PruneConfig) -> None:
    weight, constant = walk.slim.affine(layer.node)
    start = torch.cat([weight.flatten(1).T, constant[None]]).double()
    fit, judge = (RowSums(len(start) - 1, layer.outputs) for _ in range(2))
    end = walk.trace.index(layer.result)
    for chunk in walk.calibration.own():
        slim, dense = walk.segment("slim", chunk, end), walk.segment("dense", chunk, end)
        sums = judge if chunk in walk.calibration.held_out else fit
        x = slim[source(layer, walk.trace)]
        picked = sampled(layer, x, walk.calibration, chunk, len(start), config.seed)
        sums.add(input_rows(layer, x, picked), output_rows(layer, dense[layer.result], picked))
    fit, judge = (sums.moments().over_processes() for sums in (fit, judge))
    levels = [config.damping * level for level in DAMPINGS]
    tried = [start, *least_squares_at(fit, start, levels, layer.has_bias)]
    best = min(tried, key=judge.error)
    if best is not start:
        solved = best[:-1].T.float().reshape(weight.shape).contiguous(), best[-1].float()
        walk.commit(walk.slim.with_layers({layer.node: solved}))
