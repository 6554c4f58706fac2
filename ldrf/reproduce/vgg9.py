"""VGG-9 on CIFAR-10: the cells of Tab. 1, Tab. 2, Fig. 5 with Tab. 5, Fig. 6, and Fig. 7b's question."""

from dataclasses import replace

from ldrf.reproduce import paper
from ldrf.reproduce.cells import Cell
from ldrf.reproduce.recipe import QUICK, Recipe, Scale, prune_cell
from ldrf.reproduce.rivals import COMPARED
from ldrf.reproduce.vgg9_sections import CRITERIA, SELECTION_IMAGES, SELECTION_STEPS, SPEEDUPS, sections, selected

RIVALS = tuple(m for m in COMPARED if m not in ("ldrf", "he2017"))
WATCHED = 2000  # test images on which fine-tuning is watched; its end is measured on all
IMAGE = 7  # the test image of Fig. 6


def cells(scale: Scale) -> list[Cell]:
    """All cells, the most telling first."""
    dense = Cell("dense", "dense", {"test_images": scale.test_images})
    speedups = (min(SPEEDUPS), max(SPEEDUPS)) if scale.ends_only else SPEEDUPS
    pair = {s: [_pruned(m, s, scale) for m in ("ldrf", "he2017") if s in speedups] for s in SPEEDUPS}
    after = {s: [_tuned(cell, scale) for cell in cut] for s, cut in pair.items()}
    slimmest = pair[5][0]
    first, *more = _selections(scale)
    return [
        *(dense, *pair[5], *pair[4], *first),
        *(*after[5], *pair[2], *pair[3]),
        *(Cell(f"time-{s}x", "time", {"batch": 16, "seconds": scale.timing}, pair[s][0]) for s in speedups),
        Cell("maps-5x", "maps", {"module": "features.2", "image": IMAGE}, slimmest),
        Cell("ranks", "ranks", {"energy": paper.VGG9_ENERGY, "images": min(scale.images, 256)}),
        _energy(scale),
        *(prune_cell(f"{m}-5x", m, scale, source=slimmest) for m in RIVALS),
        *(cell for seed in more for cell in seed),
        *(*after[4], *after[2], *after[3]),
        _tuned(dense, scale),
    ]


def _pruned(method: str, speedup: int, scale: Scale) -> Cell:
    return prune_cell(f"{method}-{speedup}x", method, scale, {"widths": paper.vgg9_widths(speedup)})


def _tuned(cell: Cell, scale: Scale) -> Cell:
    watched = min(WATCHED, scale.test_images or WATCHED)
    settings = {"iterations": scale.iterations, "test_images": scale.test_images, "watched": watched, "seed": 0}
    return Cell(f"{cell.name}-tuned", "tune", settings, cell)


def _selections(scale: Scale) -> list[list[Cell]]:
    """Tab. 2's criteria and our own at 5x, a list a seed, at a smaller scale than elsewhere: there are many."""
    target = {"widths": paper.vgg9_widths(5)}
    small = replace(scale, images=min(scale.images, SELECTION_IMAGES), steps=min(scale.steps, SELECTION_STEPS))
    return [
        [prune_cell(selected(c, seed), "ldrf", small, target, seed=seed, selection=c) for c in CRITERIA]
        for seed in range(scale.seeds)
    ]


def _energy(scale: Scale) -> Cell:
    """Algorithm 1's loop on the six convs: with 'classifier.3' left alone, what it reads and gives is left too."""
    steps = max(1, scale.steps * 3 // 8)
    return Cell("energy", "energy", {"images": scale.images, "steps": steps, "ignore": ["classifier.3"], "seed": 0})


RECIPE = Recipe(
    name="vgg9-cifar10",
    title="VGG-9 on CIFAR-10",
    model="vgg9",
    data="cifar10:folder",
    full=Scale(images=10_000, test_images=None, steps=800, iterations=1000, seeds=3),
    quick=replace(QUICK, ends_only=True),
    cells=cells,
    sections=sections,
)
