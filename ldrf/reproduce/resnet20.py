"""ResNet-20 on CIFAR-10, which the paper does not have: all methods at 1.5, 2 and 3x."""

from ldrf.reproduce.cells import Cell
from ldrf.reproduce.figures import LineChart, Series
from ldrf.reproduce.published import SFVR_RESNET20, beside
from ldrf.reproduce.recipe import QUICK, Outcomes, Recipe, Scale, Section, prune_cell
from ldrf.reproduce.rivals import COMPARED, MARK, titled
from ldrf.reproduce.tables import Table, number

SPEEDUPS = (1.5, 2.0, 3.0)
ORDER = (2.0, 3.0, 1.5)  # the most telling first


def cells(scale: Scale) -> list[Cell]:
    """LDRF chooses the widths, the others get the same ones; then, at 2x, all at the same share of every layer."""
    planned = [Cell("dense", "dense", {"test_images": scale.test_images})]
    for speedup in ORDER:
        first = prune_cell(f"ldrf-{speedup:g}x", "ldrf", scale, {"speedup": speedup})
        planned += [first, *_others(first, f"{speedup:g}x", scale)]
    same = prune_cell("ldrf-2x-uniform", "ldrf", scale, {"speedup": 2.0}, allocation="uniform")
    return [*planned, same, *_others(same, "2x-uniform", scale)]


def _others(first: Cell, setting: str, scale: Scale) -> list[Cell]:
    return [prune_cell(f"{m}-{setting}", m, scale, source=first) for m in COMPARED if m != "ldrf"]


def sections(outcomes: Outcomes) -> list[Section]:
    """The page's part on ResNet-20."""
    ours = tuple(f"ldrf-{speedup:g}x" for speedup in SPEEDUPS)
    return [_all_methods(outcomes), _uniform(outcomes), beside(outcomes, "ResNet-20", ours, SFVR_RESNET20)]


def _all_methods(outcomes: Outcomes) -> Section:
    rows = []
    for method in COMPARED:
        names = [f"{method}-{s:g}x" for s in SPEEDUPS]
        pairs = [(number(outcomes.value(n)), number(outcomes.drop(n))) for n in names]
        rows.append((titled(method), *(cell for pair in pairs for cell in pair)))
    reached = ", ".join(number(outcomes.speedup(f"ldrf-{s:g}x"), 2, "x") for s in SPEEDUPS)
    text = (
        f"The dense network has {number(outcomes.value('dense'))} % top-1. LDRF chooses the widths for each speed-up "
        f"(reached: {reached}); every other method gets the same widths and the same images, but Torch-Pruning, which "
        f"takes the same share of every layer at the same MACs. No fine-tuning. {MARK} uses labels."
    )
    heads = ("method", *(h for s in SPEEDUPS for h in (f"{s:g}x: top-1", "lost")))
    chart = _chart(outcomes)
    return Section("methods", "All methods", text, (Table(heads, tuple(rows)),), (chart,) if chart.series else ())


def _chart(outcomes: Outcomes) -> LineChart:
    series = []
    for method in COMPARED:
        points = [(s, top1) for s in SPEEDUPS if (top1 := outcomes.value(f"{method}-{s:g}x")) is not None]
        if points:
            line = ":" if COMPARED[method].labels else "-"
            series.append(Series(titled(method), tuple(points), COMPARED[method].colour, line))
    caption = "ResNet-20: top-1 without fine-tuning at LDRF's widths."
    return LineChart("resnet20-methods", caption, "speed-up (MACs)", "top-1, %", tuple(series), SPEEDUPS)


def _uniform(outcomes: Outcomes) -> Section:
    rows = []
    for method in COMPARED:
        names = (f"{method}-2x", f"{method}-2x-uniform")
        rows.append((titled(method), *(number(outcomes.value(n)) for n in names), number(outcomes.drop(names[1]))))
    reached = number(outcomes.speedup("ldrf-2x-uniform"), 2, "x")
    text = f"At 2x with LDRF's widths, and with the same share of neurons in every layer ({reached} reached)."
    heads = ("method", "top-1 at LDRF's widths", "top-1 at the same share", "lost at the same share")
    return Section("uniform", "Who chooses the widths", text, (Table(heads, tuple(rows)),))


RECIPE = Recipe(
    name="resnet20-cifar10",
    title="ResNet-20 on CIFAR-10",
    model="resnet20",
    data="cifar10:folder",
    full=Scale(images=2048, test_images=None, steps=800),
    quick=QUICK,
    cells=cells,
    sections=sections,
)
