"""VGG-9 on CIFAR-10: how its cells fold into the paper's tables and figures."""

from ldrf.reproduce import paper
from ldrf.reproduce.figures import BarChart, Figure, LineChart, MapSheet, Series
from ldrf.reproduce.published import AUTOBOT_VGG16, beside
from ldrf.reproduce.recipe import Outcomes, Section
from ldrf.reproduce.rivals import COMPARED, MARK, titled
from ldrf.reproduce.tables import Table, compared, number, signed, spread

SPEEDUPS = tuple(paper.VGG9_WIDTHS)
CRITERIA = {
    **{"top-k": "Top-k", "random": "Random", "apoz": "APoZ", "activation": "Activation", "weight": "Weight"},
    "second-order": "second-order (our default)",
}
SELECTION_IMAGES, SELECTION_STEPS = 1000, 150  # of Tab. 2's cells, at most
PAIR = ("ldrf", "he2017")


def selected(criterion: str, seed: int) -> str:
    return f"ldrf-5x-{criterion}-seed{seed}"


def sections(outcomes: Outcomes) -> list[Section]:
    """The page's part on VGG-9."""
    return [
        _tab1(outcomes),
        _tab2(outcomes),
        _fig5(outcomes),
        _fig6(outcomes),
        _fig7b(outcomes),
        _rivals(outcomes),
        beside(outcomes, "VGG-9", tuple(f"ldrf-{speedup}x" for speedup in SPEEDUPS), AUTOBOT_VGG16),
    ]


def _tab1(outcomes: Outcomes) -> Section:
    energy = outcomes.of("energy")
    text = (
        f"Low ranks of the weights: the paper keeps {paper.VGG9_ENERGY} of the sum of singular values, the smallest "
        f"share from which its network recovered by short fine-tuning; the same loop (Algorithm 1, lines 4-11) {MARK} "
        f"ends here at {number(energy.get('energy'))}"
        f"{'' if energy.get('recovered', True) else ', without recovering'}. "
        "Then the four width settings, which are the paper's, with the sparsity of each layer and the MACs that follow "
        "from them."
    )
    tables = (_ranks(outcomes), _loop(outcomes), _sparsities(outcomes), _costs(outcomes))
    return Section("tab1", "Tab. 1: ranks and widths", text, tables)


def _ranks(outcomes: Outcomes) -> Table:
    energy, same = outcomes.of("energy"), outcomes.of("ranks").get("ranks", {})
    rows = []
    for (title, name), neurons, rank in zip(
        paper.VGG9_LAYERS.items(), paper.VGG9_NEURONS, paper.VGG9_RANKS, strict=True
    ):
        ours = compared(rank, energy.get("ranks", {}).get(name), 0)
        rows.append((title, str(neurons), *ours, *compared(rank, same.get(name), 0)[1:]))
    at = number(energy.get("energy"))
    heads = ("layer", "neurons", f"paper: rank at {paper.VGG9_ENERGY}", f"ours: at {at}", "difference")
    return Table((*heads, f"ours: at {paper.VGG9_ENERGY}", "difference"), tuple(rows))


def _loop(outcomes: Outcomes) -> Table:
    """The energies that Algorithm 1's loop went through."""
    rows = []
    for trial in outcomes.of("energy").get("trials", ()):
        scores = (number(100 * trial[key]) for key in ("before", "after", "dense"))
        rows.append((number(trial["energy"]), str(sum(trial["ranks"].values())), *scores))
    return Table(("share kept", "sum of ranks", "top-1 when split", f"after tuning {MARK}", "dense"), tuple(rows))


def _sparsities(outcomes: Outcomes) -> Table:
    rows = []
    for s in SPEEDUPS:
        ours = outcomes.of(f"ldrf-{s}x").get("sparsity", {})
        for (title, name), width, share in zip(
            paper.VGG9_LAYERS.items(), paper.VGG9_WIDTHS[s], paper.VGG9_SPARSITY[s], strict=True
        ):
            rows.append((f"{s}x, {title}", str(width), *compared(share, ours.get(name), 1)))
    return Table(("setting, layer", "width", "paper: sparsity, %", "ours", "difference"), tuple(rows))


def _costs(outcomes: Outcomes) -> Table:
    rows = [
        (
            f"{s}x",
            *compared(s, outcomes.speedup(f"ldrf-{s}x")),
            number(_millions(outcomes.value(f"ldrf-{s}x", "macs")), 1),
            number(_millions(outcomes.value(f"ldrf-{s}x", "parameters"))),
        )
        for s in SPEEDUPS
    ]
    dense = (
        number(_millions(outcomes.value("dense", "macs")), 1),
        number(_millions(outcomes.value("dense", "parameters"))),
    )
    heads = ("setting", "paper: speed-up", "ours: dense MACs / slim MACs", "difference", "MACs, M", "parameters, M")
    return Table(heads, (("dense", *compared(1, 1.0), *dense), *rows))


def _millions(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def _tab2(outcomes: Outcomes) -> Section:
    rows = []
    for criterion, title in CRITERIA.items():
        names = [selected(criterion, seed) for seed in range(outcomes.scale.seeds)]
        drops = [d for d in map(outcomes.drop, names) if d is not None]
        ours = sum(drops) / len(drops) if drops else None
        in_paper, _, difference = compared(paper.VGG9_CRITERIA.get(criterion), ours)
        rows.append((title, in_paper, spread(drops), difference, str(len(drops))))
    text = (
        "Increase of error of VGG-9 at the paper's 5x widths before fine-tuning, by the criterion that selects the "
        "neurons. Ours is the mean and the standard deviation over seeds, which choose the calibration images too: "
        f"{min(outcomes.scale.images, SELECTION_IMAGES):,} of them, with {min(outcomes.scale.steps, SELECTION_STEPS)} "
        "descent steps a unit, which is less than in the other tables."
    )
    heads = ("criterion", "paper: error up, points", "ours", "difference", "seeds")
    return Section("tab2", "Tab. 2: which neurons stay", text, (Table(heads, tuple(rows)),))


def _fig5(outcomes: Outcomes) -> Section:
    published: dict[tuple[str, int], tuple[float | None, float | None]]
    published = {(method, 5): (paper.VGG9_BEFORE[method], paper.VGG9_AFTER[method]) for method in PAIR}
    published["ldrf", 2] = (None, paper.VGG9_AFTER_2X)
    rows = [
        (
            "dense, top-1",
            *compared(paper.VGG9_TOP1, outcomes.value("dense")),
            *compared(None, outcomes.value("dense-tuned")),
        )
    ]
    for s in SPEEDUPS:
        for method in PAIR:
            before, after = published.get((method, s), (None, None))
            name = f"{method}-{s}x"
            ours = compared(before, outcomes.drop(name)), compared(after, outcomes.drop(f"{name}-tuned"))
            rows.append((f"{s}x, {titled(method)}", *ours[0], *ours[1]))
    text = (
        "Points of top-1 lost at Tab. 1's widths, before and after fine-tuning "
        f"({MARK}, a rate of 0.01 falling linearly, {outcomes.scale.iterations:,} iterations of 100 images; the paper: "
        f"{paper.FINE_TUNING_ITERATIONS:,}). Both are against the dense network as it came; the first row shows its "
        "accuracy, and what the same fine-tuning does to it. The paper's other points are drawn in its Fig. 5, but not "
        "written."
    )
    pair = ("difference", f"paper: after {MARK}", f"ours: after {MARK}", "difference")
    heads = ("paper: before", "ours: before", *pair)
    figures = [f for f in (_drop_chart(outcomes), _curve_chart(outcomes)) if f.series]
    tables = (Table(("setting", *heads), tuple(rows)), Table(("LDRF's drop / He's", *heads), tuple(_shares(outcomes))))
    return Section("fig5", "Fig. 5 and Tab. 5: LDRF against He et al.", text, tables, tuple(figures))


def _shares(outcomes: Outcomes) -> list[tuple[str, ...]]:
    """LDRF's drop as a share of He's: below 0.5 is the paper's message."""
    published = {5: (paper.VGG9_BEFORE, paper.VGG9_AFTER)}
    rows = []
    for s in SPEEDUPS:
        row = [f"{s}x"]
        for index, suffix in enumerate(("", "-tuned")):
            ours = _share(outcomes.drop(f"ldrf-{s}x{suffix}"), outcomes.drop(f"he2017-{s}x{suffix}"))
            theirs = _share(published[s][index]["ldrf"], published[s][index]["he2017"]) if s in published else None
            row += compared(theirs, ours)
        rows.append(tuple(row))
    return rows


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole is not None and whole > 0 else None


def _drop_chart(outcomes: Outcomes) -> LineChart:
    series = []
    for method in PAIR:
        for suffix, word, line in (("", "before", "-"), ("-tuned", f"after fine-tuning {MARK}", "--")):
            points = [(s, d) for s in SPEEDUPS if (d := outcomes.drop(f"{method}-{s}x{suffix}")) is not None]
            if points:
                label = f"{COMPARED[method].title}, {word}"
                series.append(Series(label, tuple(points), COMPARED[method].colour, line))
        points = tuple((5, drops[method]) for drops in (paper.VGG9_BEFORE, paper.VGG9_AFTER))
        if any(outcomes.drop(f"{m}-{s}x") is not None for m in PAIR for s in SPEEDUPS):
            series.append(
                Series(f"{COMPARED[method].title}, the paper's Tab. 5", points, COMPARED[method].colour, "", "x")
            )
    caption = "Fig. 5: points of top-1 lost at the paper's four width settings."
    return LineChart(
        "vgg9-fig5", caption, "speed-up setting (MACs)", "top-1 lost, points", tuple(series), SPEEDUPS, True
    )


def _curve_chart(outcomes: Outcomes) -> LineChart:
    """Accuracy while fine-tuning, at the two ends of the settings."""
    series, watched = [], 0
    for s, line in ((5, "-"), (2, "--")):
        for method in PAIR:
            tuned = outcomes.of(f"{method}-{s}x-tuned")
            if tuned:
                watched = tuned["watched"]
                points = ((0.0, tuned["start"]), *((step, top1) for step, _, top1 in tuned["curve"]))
                series.append(Series(f"{COMPARED[method].title}, {s}x", points, COMPARED[method].colour, line, "."))
    caption = f"Fine-tuning {MARK}: top-1 on {watched:,} test images."
    return LineChart("vgg9-curves", caption, "iterations of 100 images", "top-1, %", tuple(series))


def _fig6(outcomes: Outcomes) -> Section:
    maps = outcomes.of("maps-5x")
    text = (
        "Output of CONV1_1 (after its norm and ReLU) for one test image, before pruning and at 5x. Each map is scaled "
        "to its own maximum and its square root is shown, so that faint parts can be seen; the paper enhances its maps "
        "too."
    )
    caption = "Fig. 6: feature maps of CONV1_1."
    sheet: tuple[Figure, ...] = ()
    if maps:
        sheet = (MapSheet("vgg9-fig6", caption, maps["image"], maps["dense"], maps["slim"]),)
    return Section("fig6", "Fig. 6: what the first layer sees", text, (), sheet)


def _fig7b(outcomes: Outcomes) -> Section:
    rows, bars = [], {"MACs": [], "time": []}
    threads = None
    for index, s in enumerate(SPEEDUPS):
        timed = outcomes.of(f"time-{s}x")
        theory = timed["dense_macs"] / timed["macs"] if timed else None
        real = timed["ms"]["dense"] / timed["ms"]["slim"] if timed else None
        threads = timed.get("threads", threads)
        times = [timed["ms"][k] if timed else None for k in ("dense", "slim")]
        gap = None if theory is None or real is None else real - theory
        rows.append((f"{s}x", number(theory), number(real), signed(gap), *(number(t) for t in times)))
        if theory is not None and real is not None:
            bars["MACs"].append((index, theory))
            bars["time"].append((index, real))
    text = (
        "What the MACs promise and what a CPU gives"
        + (f" ({threads} threads, 16 images a call, median of calls made in turns)" if threads else "")
        + ". The paper asks this of VGG-16 in its Fig. 7b and writes no numbers there; this is VGG-9 at Tab. 1's "
        "widths."
    )
    labels = {"MACs": ("dense MACs / slim MACs", "#b8c4bb"), "time": ("measured on CPU", COMPARED["ldrf"].colour)}
    series = tuple(Series(labels[k][0], tuple(points), labels[k][1]) for k, points in bars.items() if points)
    chart = BarChart(
        "vgg9-fig7b", "Speed-up in theory and on a CPU.", tuple(f"{s}x" for s in SPEEDUPS), "speed-up", series
    )
    heads = ("setting", "in MACs", "measured", "difference", "dense, ms", "slim, ms")
    return Section(
        "fig7b", "Fig. 7b: theory and practice", text, (Table(heads, tuple(rows)),), (chart,) if series else ()
    )


def _rivals(outcomes: Outcomes) -> Section:
    published = {"ldrf": paper.VGG9_BEFORE["ldrf"], "he2017": paper.VGG9_BEFORE["he2017"]}
    rows = []
    for method in COMPARED:
        name = f"{method}-5x"
        drop = compared(published.get(method), outcomes.drop(name))
        rows.append((titled(method), *drop, number(outcomes.value(name)), number(outcomes.speedup(name), 2, "x")))
    text = (
        "Every method on the same network, at the same widths (the paper's 5x), from the same images, before "
        "fine-tuning; Torch-Pruning takes the same share of every layer instead, at the same MACs, and AIMET leaves "
        "the last conv whole, which a linear layer reads. "
        f"{MARK} uses labels."
    )
    heads = ("method", "paper: top-1 lost", "ours: top-1 lost", "difference", "ours: top-1", "MACs")
    return Section("rivals", "All methods at 5x", text, (Table(heads, tuple(rows)),))
