"""Feature maps are those of the networks, behind norm and activation, and come as small pictures."""

import base64
import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from networks import Chain, Mlp, VitBlock, images, make
from PIL import Image
from torch import nn

from ldrf.inputs import Inputs
from ldrf.report.featuremaps import COLUMNS, MOST, PICTURE, SIDE, _outputs, _picture, _sheet, feature_maps


def pixels(text: str) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(base64.b64decode(text))))


def inputs(tensor) -> Inputs:
    return Inputs((tensor,), {})


def test_the_first_cut_unit_is_shown_dense_and_slim(network, pruned):
    dense, result = network(Chain).model, pruned(Chain)
    before = {n: t.clone() for n, t in dense.state_dict().items()}
    found = feature_maps(dense, result, inputs(images(3)))
    assert found is not None and (found["unit"], found["behind"]) == ("conv1", "bn1")
    assert (found["dense"]["maps"], found["slim"]["maps"]) == (12, 6)
    assert pixels(found["image"]).shape == (8, 8, 3)
    with torch.no_grad():
        first = dense.bn1(dense.conv1(images(3)[:1]))[0, 0]
    grey = ((first - first.min()) / (first.max() - first.min())).sqrt() * 255
    np.testing.assert_allclose(pixels(found["dense"]["png"])[:8, :8, 0], grey.numpy(), atol=0.51)
    assert all(torch.equal(before[n], t) for n, t in dense.state_dict().items())
    assert not any(m._forward_hooks for m in dense.modules()), "no hook stays behind"


@pytest.mark.parametrize("kind", [Mlp, VitBlock])
def test_units_without_maps_have_none(network, pruned, kind):
    assert feature_maps(network(kind).model, pruned(kind), inputs(images(2))) is None


def test_an_activation_is_followed_even_in_place():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.Conv2d(5, 4, 1)).eval()
    x = images(1)
    name, found = _outputs(model, ["0"], inputs(x))["0"]
    assert name == "2"
    with torch.no_grad():
        torch.testing.assert_close(found, F.relu(model[1](model[0](x))))


def test_a_tensor_changed_later_in_place_is_shown_as_it_was():
    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            y = self.conv(x)
            y += 100
            return y

    model, x = make(Added), images(1)
    with torch.no_grad():
        torch.testing.assert_close(
            _outputs(model, ["conv"], inputs(x))["conv"][1], model(x) - 100, rtol=1e-4, atol=1e-4
        )


def test_hooks_go_when_the_model_fails():
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            raise ZeroDivisionError

    model = Fails()
    with pytest.raises(ZeroDivisionError):
        _outputs(model, ["conv"], inputs(images(1)))
    assert not any(m._forward_hooks for m in model.modules())


def test_a_sheet_holds_maps_in_lines_with_see_through_gaps():
    sheet = _sheet(torch.rand(100, 4, 6, generator=torch.Generator().manual_seed(0)))
    found = pixels(sheet["png"])
    assert (sheet["maps"], sheet["shown"]) == (100, MOST)
    assert found.shape == (MOST // COLUMNS * 5 - 1, COLUMNS * 7 - 1, 2)
    assert (found[4::5, :, 1] == 0).all() and (found[:, 6::7, 1] == 0).all()
    assert found[:4, :6, 1].min() == 255 and found[:4, :6, 0].min() == 0 and found[:4, :6, 0].max() == 255
    few = pixels(_sheet(torch.zeros(3, 4, 6))["png"])
    assert few.shape == (4, COLUMNS * 7 - 1, 2), "as wide as a full line, so that maps are as large beside others"
    assert few[..., 0].max() == 0 and few[:, 20:, 1].max() == 0


def test_large_maps_and_images_are_made_small():
    assert pixels(_sheet(torch.rand(2, 112, 56))["png"]).shape == (SIDE, COLUMNS * (SIDE // 2 + 1) - 1, 2)
    picture = _picture(torch.rand(2, 1, 224, 112))
    assert picture is not None and pixels(picture).shape == (PICTURE, PICTURE // 2, 3)
    assert len(_sheet(torch.rand(512, 112, 112))["png"]) < 120_000


@pytest.mark.parametrize("shape", [(2, 4, 8, 8), (2, 3), (2, 3, 8)])
def test_what_is_no_picture_is_not_shown(shape):
    assert _picture(torch.rand(shape)) is None
    assert _picture(torch.zeros(1, 3, 8, 8, dtype=torch.long)) is None
