"""The paper's numbers agree with each other where one follows from another, so a slip of the pen would show."""

import pytest
import torch

from ldrf.reproduce import paper
from ldrf.zoo.vgg9 import VGG9


@pytest.mark.parametrize("speedup", [2, 3, 4, 5])
def test_sparsity_follows_from_the_widths(speedup):
    full, slim = (3, *paper.VGG9_NEURONS), (3, *paper.VGG9_WIDTHS[speedup])
    for layer, told in enumerate(paper.VGG9_SPARSITY[speedup]):
        left = slim[layer] * slim[layer + 1] / (full[layer] * full[layer + 1])
        assert told == pytest.approx(100 * (1 - left), abs=0.051)


@pytest.mark.parametrize("speedup", [2, 3, 4, 5])
def test_the_widths_give_the_speedup_they_are_named_after(speedup):
    def macs(widths):
        inputs = (3, *widths[:-1])
        convs = [n * c * 9 * p for n, c, p in zip(widths, inputs, (1024, 1024, 256, 256, 64, 64), strict=True)]
        return sum(convs) + 16 * widths[-1] * 512 + 512 * 512 + 512 * 10

    ratio = macs(paper.VGG9_NEURONS) / macs(paper.VGG9_WIDTHS[speedup])
    assert ratio == pytest.approx(speedup, rel=0.05)


def test_widths_lie_in_their_ranges():
    for widths in paper.VGG9_WIDTHS.values():
        for rank, width, full in zip(paper.VGG9_RANKS, widths, paper.VGG9_NEURONS, strict=True):
            assert rank <= width <= full
    assert all(rank < full for rank, full in paper.VGG16_RANGES)


def test_layers_are_the_zoos():
    convs = [(n, m.out_channels) for n, m in VGG9().named_modules() if type(m).__name__ == "Conv2d"]
    assert convs == list(zip(paper.VGG9_LAYERS.values(), paper.VGG9_NEURONS, strict=True))
    assert paper.vgg9_widths(5)["features.14"] == 152


def test_vgg16s_layers_are_torchvisions():
    from ldrf.cli.vision import import_vision

    with torch.device("meta"):
        model = import_vision("torchvision").models.vgg16(weights=None)
    convs = [(n, m.out_channels) for n, m in model.named_modules() if type(m).__name__ == "Conv2d"]
    assert convs == list(zip(paper.VGG16_LAYERS.values(), (full for _, full in paper.VGG16_RANGES), strict=True))


@pytest.mark.parametrize(
    ("results", "dense"),
    [(paper.VGG16_RESULTS, paper.VGG16_TOP5), (paper.RESNET50_RESULTS, paper.RESNET50_TOP5)],
)
def test_increased_error_is_the_dense_accuracy_less_the_pruned(results, dense):
    for _, top5, lost, speedup in results:
        assert lost == pytest.approx(dense - top5) and speedup > 1


def test_tables_2_3_and_5_tell_the_same():
    assert paper.VGG9_CRITERIA["top-k"] == pytest.approx(paper.VGG9_BEFORE["ldrf"], abs=0.05)
    assert paper.VGG16_RESULTS[-1][2] == paper.VGG16_AFTER["ldrf"]
    assert paper.VGG16_RESULTS[-2][2] == paper.VGG16_AFTER["he2017"]
