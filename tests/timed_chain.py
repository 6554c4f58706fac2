"""A chain of layers whose times are arithmetic, and the best plan of all by trying every one."""

import itertools

from deployment_pieces import PIECES

from ldrf.deployment.tables import Table, Wanted
from ldrf.planning.cost_model import Size
from ldrf.planning.latency_model import LatencyModel, LayerCost

CHOICES = {"a": (8, 16, 24), "b": (8, 16, 24, 32), "c": (16, 32)}
ERRORS = {"a": [5.0, 1.0, 0.0], "b": [6.0, 2.5, 1.0, 0.0], "c": [3.0, 0.0]}


def layer(name: str, inputs: Size, outputs: Size, geometry) -> LayerCost:
    """A layer that takes what blocks of sixteen outputs take."""
    sides = [_all(size) for size in (inputs, outputs)]
    seconds = {(i, o): 10 + i * (-(-o // 16) * 16) / 10 for i in sides[0] for o in sides[1]}
    return LayerCost(name, Table(Wanted(geometry, *sides), seconds), inputs, outputs)


def _all(size: Size) -> tuple[int, ...]:
    plans = itertools.product(*(CHOICES[name] for name in size.per))
    return tuple(sorted({size.at(dict(zip(size.per, plan, strict=True))) for plan in plans}))


def timed_chain() -> LatencyModel:
    """Three units in a row, and the four layers between the images and the classes."""
    geometry = PIECES[0].geometry
    sizes = [Size({}, 3.0), *(Size({name: 1.0}, 0.0) for name in CHOICES), Size({}, 10.0)]
    layers = tuple(layer(f"layer{k}", *pair, geometry) for k, pair in enumerate(itertools.pairwise(sizes)))
    return LatencyModel(layers, 50.0, {name: widths[-1] for name, widths in CHOICES.items()})


def best_of_all(model: LatencyModel, ratio: float) -> float:
    """The least error of all plans within the budget."""
    plans = itertools.product(*(range(len(CHOICES[name])) for name in CHOICES))
    errors = []
    for plan in plans:
        widths = {name: CHOICES[name][k] for name, k in zip(CHOICES, plan, strict=True)}
        if model.at(widths) <= model.at({}) / ratio:
            errors.append(sum(ERRORS[name][k] for name, k in zip(CHOICES, plan, strict=True)))
    return min(errors)
