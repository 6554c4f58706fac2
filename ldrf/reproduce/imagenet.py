"""ResNet-50 and VGG-16 on ImageNet at the paper's settings (Tab. 3, Tab. 4, the supplement's ranges)."""

from dataclasses import dataclass, replace

from ldrf.reproduce import paper
from ldrf.reproduce.cells import Cell
from ldrf.reproduce.figures import LineChart, Series
from ldrf.reproduce.recipe import QUICK, Outcomes, Recipe, Scale, Section, prune_cell
from ldrf.reproduce.rivals import COMPARED, MARK, titled
from ldrf.reproduce.tables import MISSING, Table, compared, number

RIVALS = ("ldrf-together", "he2017", "thinet", "li2017", "torch-pruning-l1")
CONVS_ONLY = ("classifier.3",)  # what it reads and what it gives stay, so that only convs are cut, as in the paper
FULL = Scale(images=512, test_images=None, steps=120, chunk=16)


def resnet50_cells(scale: Scale) -> list[Cell]:
    """LDRF at 2.27x and 3x, and the rivals at the same widths."""
    cells = [Cell("dense", "dense", {"test_images": scale.test_images})]
    for speedup in paper.RESNET50_SPEEDUPS:
        cells += _at(speedup, scale, RIVALS, ())
    return cells


def vgg16_cells(scale: Scale) -> list[Cell]:
    """Ranks at 0.65, LDRF at 5.1, 5.8, 6.6 and 7x, and the rivals at 5.1x."""
    cells = [
        Cell("dense", "dense", {"test_images": scale.test_images}),
        Cell("ranks", "ranks", {"energy": paper.VGG16_ENERGY, "images": min(scale.images, 64)}),
    ]
    for speedup in paper.VGG16_SPEEDUPS:
        cells += _at(speedup, scale, RIVALS if speedup == paper.VGG16_SPEEDUPS[0] else (), CONVS_ONLY)
    return cells


def _at(speedup: float, scale: Scale, rivals: tuple[str, ...], ignore: tuple[str, ...]) -> list[Cell]:
    first = prune_cell(f"ldrf-{speedup:g}x", "ldrf", scale, {"speedup": speedup}, ignore=ignore)
    return [first, *(prune_cell(f"{m}-{speedup:g}x", m, scale, source=first, ignore=ignore) for m in rivals)]


def resnet50_sections(outcomes: Outcomes) -> list[Section]:
    """The page's part on ResNet-50."""
    published = _Published(
        "resnet50",
        paper.RESNET50_TOP5,
        paper.RESNET50_RESULTS,
        {"LDRF-1": "ldrf-2.27x", "LDRF-2": "ldrf-3x", "Luo et al.-2": "thinet-2.27x"},
        {},
    )
    return [_comparison("tab4", "Tab. 4: ResNet-50", outcomes, paper.RESNET50_SPEEDUPS, published)]


def vgg16_sections(outcomes: Outcomes) -> list[Section]:
    """The page's part on VGG-16."""
    before = {f"{method}-5.1x": lost for method, lost in paper.VGG16_BEFORE.items()}
    twins = {"LDRF": "ldrf-5.1x", "He et al.-2": "he2017-5.1x"}
    published = _Published("vgg16", paper.VGG16_TOP5, paper.VGG16_RESULTS, twins, before)
    return [
        _comparison("tab3", "Tab. 3, Tab. 5 and Fig. 7a: VGG-16", outcomes, paper.VGG16_SPEEDUPS, published),
        _supplement(outcomes),
    ]


@dataclass(frozen=True)
class _Published:
    """What the paper says of a network: top-5 of the dense one, its table, which of our cells is the twin of a row of
    it, and points of top-5 lost before fine-tuning by cell."""

    network: str
    top5: float
    results: tuple[tuple[str, float, float, float], ...]
    twins: dict[str, str]
    before: dict[str, float]


def _comparison(
    key: str, title: str, outcomes: Outcomes, speedups: tuple[float, ...], published: _Published
) -> Section:
    after = {published.twins[name]: lost for name, _, lost, _ in published.results if name in published.twins}
    rows = []
    for speedup in speedups:
        for method in ("ldrf", *RIVALS):
            name = f"{method}-{speedup:g}x"
            if name in outcomes.planned:
                before, ours, gap = compared(published.before.get(name), outcomes.drop(name, "top5"))
                rest = compared(after.get(name), outcomes.drop(name, "top5"))
                top1 = number(outcomes.value(name)), number(outcomes.drop(name))
                rows.append((f"{speedup:g}x, {titled(method)}", before, ours, gap, rest[0], rest[2], *top1))
    for name, _, lost, speedup in published.results:
        if name not in published.twins:
            rows.append((f"{speedup:g}x, the paper's {name}", *[MISSING] * 3, number(lost), *[MISSING] * 3))
    dense = compared(published.top5, outcomes.value("dense", "top5"))
    text = (
        f"Top-5 of the dense network: {dense[0]} in the paper, {dense[1]} here ({dense[2]}); its top-1 here: "
        f"{number(outcomes.value('dense'))}. Ours is before fine-tuning, at the widths that LDRF chooses for the "
        f"speed-up (the paper does not give its widths); most of the paper's numbers are after it {MARK}. "
        "Points of top-5 lost:"
    )
    heads = (
        "setting",
        "paper: before",
        "ours: before",
        "difference",
        f"paper: after {MARK}",
        "difference of ours before",
    )
    chart = _chart(f"{published.network}-top5", outcomes, speedups, published)
    table = Table((*heads, "ours: top-1", "top-1 lost"), tuple(rows))
    return Section(key, title, text, (table,), (chart,) if chart.series else ())


def _chart(name: str, outcomes: Outcomes, speedups: tuple[float, ...], published: _Published) -> LineChart:
    series = []
    for method in ("ldrf", *RIVALS):
        points = [(s, d) for s in speedups if (d := outcomes.drop(f"{method}-{s:g}x", "top5")) is not None]
        if points:
            series.append(Series(titled(method), tuple(points), COMPARED[method].colour))
    if series:
        points = tuple((speedup, lost) for title, _, lost, speedup in published.results if title.startswith("LDRF"))
        series.append(Series(f"LDRF in the paper, fine-tuned {MARK}", points, "#222222", "", "x"))
    caption = "Points of top-5 lost, ours before fine-tuning."
    return LineChart(name, caption, "speed-up (MACs)", "top-5 lost, points", tuple(series), speedups, from_zero=True)


def _supplement(outcomes: Outcomes) -> Section:
    ranks = outcomes.of("ranks").get("ranks", {})
    rows = [
        (title, str(neurons), *compared(rank, ranks.get(name), 0))
        for (title, name), (rank, neurons) in zip(paper.VGG16_LAYERS.items(), paper.VGG16_RANGES, strict=True)
    ]
    text = f"Low rank of every conv at {paper.VGG16_ENERGY} of the sum of singular values: the lower end of its width."
    heads = ("layer", "neurons", "paper: rank", "ours", "difference")
    return Section("supplement", "Supplement: ranges of widths", text, (Table(heads, tuple(rows)),))


RESNET50 = Recipe(
    name="resnet50-imagenet",
    title="ResNet-50 on ImageNet",
    model="torchvision:resnet50.IMAGENET1K_V1",
    data="imagefolder:folder",
    full=FULL,
    quick=QUICK,
    cells=resnet50_cells,
    sections=resnet50_sections,
    random_crops=True,
)
VGG16 = replace(
    RESNET50,
    name="vgg16-imagenet",
    title="VGG-16 on ImageNet",
    model="torchvision:vgg16",
    cells=vgg16_cells,
    sections=vgg16_sections,
)
