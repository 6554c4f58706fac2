"""The zoo's networks have the paper's shapes, and load weights trained by others."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ldrf.data.sample import load_sample
from ldrf.errors import LdrfError
from ldrf.zoo.cifar_resnet import resnet20, resnet56
from ldrf.zoo.pretrained import pretrained_vgg9
from ldrf.zoo.training import evaluate
from ldrf.zoo.vgg9 import VGG9

SHARED = Path(os.environ.get("LDRF_SHARED", Path(__file__).parents[3] / "shared"))
RESNET20 = SHARED / "weights" / "resnet20-cifar10.safetensors"


@pytest.mark.parametrize("make", [VGG9, resnet20, resnet56])
def test_networks_map_images_to_class_scores(make):
    model = make().eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_vgg9_has_the_papers_layers():
    layers = [m for m in VGG9().modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert [m.weight.shape[0] for m in layers] == [64, 64, 128, 128, 256, 256, 512, 512, 10]


@pytest.mark.parametrize(("make", "depth"), [(resnet20, 20), (resnet56, 56)])
def test_resnets_have_their_depth(make, depth):
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in make().modules()) == depth


@pytest.mark.slow
@pytest.mark.skipif(not RESNET20.is_file(), reason="no resnet20-cifar10.safetensors (set LDRF_SHARED to its folder)")
def test_resnet20_takes_weights_trained_by_others():
    model = resnet20()
    model.load_state_dict(load_file(RESNET20))
    assert evaluate(model, load_sample()[1][:500]) > 88


@pytest.mark.slow
def test_the_bundled_vgg9_is_trained():
    model = pretrained_vgg9()
    assert not model.training
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert evaluate(model, load_sample()[1][:300]) > 88


def test_missing_or_damaged_bundled_weights_are_one_sentence(tmp_path):
    path = tmp_path / "vgg9.safetensors"
    with pytest.raises(LdrfError, match="missing or damaged: install ldrf again"):
        pretrained_vgg9(path)
    path.write_bytes(b"not safetensors")
    with pytest.raises(LdrfError, match="missing or damaged"):
        pretrained_vgg9(path)
    save_file({"other": torch.zeros(1)}, path)
    with pytest.raises(LdrfError, match="missing or damaged"):
        pretrained_vgg9(path)
