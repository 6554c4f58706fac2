"""Points that others published on CIFAR-10, before fine-tuning, beside ours: on other weights and other images."""

from dataclasses import dataclass

from ldrf.reproduce.recipe import Outcomes, Section
from ldrf.reproduce.rivals import MARK
from ldrf.reproduce.tables import Table, number


@dataclass(frozen=True)
class Point:
    """One network that others cut: dense MACs over slim MACs, and its top-1 before fine-tuning."""

    speedup: float
    top1: float


@dataclass(frozen=True)
class Published:
    """The points of one method on one network, whose dense top-1 is that of its authors."""

    method: str
    network: str
    dense: float
    points: tuple[Point, ...]


# AutoBot, VGG-16 on CIFAR-10: it trains its bottlenecks with labels.
AUTOBOT_VGG16 = Published(
    f"AutoBot {MARK}", "VGG-16", 93.96, (Point(2.16, 88.29), Point(2.89, 82.73), Point(4.33, 71.24))
)
# SFVR states the share of MACs that is gone: 29, 39 and 49 %.
SFVR_RESNET20 = Published(
    "SFVR",
    "ResNet-20",
    92.5,
    tuple(Point(1 / (1 - share), top1) for share, top1 in ((0.29, 86.7), (0.39, 80.1), (0.49, 67.6))),
)


def beside(outcomes: Outcomes, network: str, cells: tuple[str, ...], others: Published) -> Section:
    """Our cells and the points of others in one table, each with its own dense network."""
    dense = outcomes.value("dense")
    rows = [
        ("LDRF, measured here", network, number(outcomes.speedup(cell), 2, "x"), number(dense), *_both(outcomes, cell))
        for cell in cells
    ]
    for point in others.points:
        lost = number(others.dense - point.top1)
        title = f"{others.method}, as published"
        rows.append(
            (title, others.network, number(point.speedup, 2, "x"), number(others.dense), number(point.top1), lost)
        )
    text = (
        f"Before fine-tuning. The points of {others.method} are **as published** by its authors, on their own weights "
        "and images; nothing of it was run here, so only the loss compares, and that roughly."
    )
    text += "" if others.network == network else f" It is another network, too: {others.network}, not {network}."
    heads = ("method", "network", "fewer MACs", "dense top-1", "top-1", "lost")
    return Section("published", "What others published", text, (Table(heads, tuple(rows)),))


def _both(outcomes: Outcomes, cell: str) -> tuple[str, str]:
    return number(outcomes.value(cell)), number(outcomes.drop(cell))
