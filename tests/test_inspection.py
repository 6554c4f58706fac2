"""A look before cutting says what can be cut, what goes with it, and why the rest stays."""

import json

import pytest
import torch
from fake_runtime import FakeClock
from networks import Bottleneck, Chain, Grouped, VitBlock, images, make

import ldrf
from ldrf.calibration.network import with_coupled
from ldrf.cli import main
from ldrf.inspection import inspect_network
from ldrf.registry import RUNTIMES
from ldrf.zoo.pretrained import pretrained_vgg9


@pytest.mark.slow
def test_units_name_what_is_cut_with_them_and_who_reads_them(network):
    found = inspect_network(network(Grouped), ldrf.PruneConfig())
    unit = found.units[0]
    assert unit.name == "conv1" and unit.width == 4
    assert {"conv2", "bn2", "excite"} <= set(unit.together)
    assert set(unit.readers) == {"squeeze", "conv3"}
    assert 0 < unit.macs <= found.macs


@pytest.mark.slow
def test_share_and_largest_speedup_follow_from_the_costs(network):
    chain = inspect_network(network(Chain), ldrf.PruneConfig(energy=0.2))
    assert chain.share == 1.0 and chain.speedup > 2 and chain.coupled_speedup == chain.speedup
    vit = inspect_network(network(VitBlock), ldrf.PruneConfig(energy=0.2))
    assert 0.2 < vit.share < 0.7  # only its MLP
    block = inspect_network(network(Bottleneck), ldrf.PruneConfig(energy=0.2))
    assert block.coupled_speedup > block.speedup and block.coupled_share > block.share
    assert f"with coupled widths {block.coupled_share:.0%}" in str(block) and "(coupled)" not in str(block)
    whole = inspect_network(with_coupled(network(Bottleneck)), ldrf.PruneConfig(energy=0.2))
    assert whole.share == block.coupled_share
    assert [u.name for u in whole.units if f"{u.name} (coupled)" in str(whole)] == [
        u.name for u in whole.units if u.coupled
    ]


def test_every_layer_left_alone_is_listed_with_its_reason(network):
    text = str(inspect_network(network(VitBlock), ldrf.PruneConfig()))
    assert "qkv: its outputs are queries or keys" in text
    assert "head: it is an output of the model" in text
    assert "the largest speedup is" in text


def test_with_a_deployment_it_says_where_the_time_goes():
    with RUNTIMES.registered("fake", FakeClock(step=1).runtime()):
        found = ldrf.inspect(make(Chain), [images(4)], deployment=ldrf.Deployment("fake", batch=2))
    assert found.time is not None and [layer.name for layer in found.time.layers] == ["conv1", "conv2", "fc"]
    assert "fake, batch 2, 1 thread" in str(found)
    assert found.as_dict()["time"]["layers"][0]["name"] == "conv1"


@pytest.mark.slow
def test_the_command_prints_the_same(capsys):
    assert main(["inspect", "resnet20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["units"]) == 9 and found["prunable_share"] > 0.9
    assert found["largest_speedup"] > 2 and all(s["reason"] for s in found["skipped"])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["inspect", "resnet20", "--shape", "3,x"], "must be whole numbers"),
        (["inspect", "resnet20", "--shape", "3,8,8", "--data", "sample"], "not both"),
        (["inspect", "nosuch"], "Unknown model"),
        (["inspect", "resnet20", "--batch", "4"], "--runtime, --batch and --threads go with --time"),
    ],
)
def test_wrong_commands_say_what_is_wrong(argv, words, capsys):
    assert main(argv) in (1, 2)
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_the_bundled_network_is_looked_at_with_its_own_weights_and_others_say_that_they_are_random(capsys):
    assert main(["inspect", "vgg9", "--json"]) == 0
    bundled = json.loads(capsys.readouterr().out)
    own = ldrf.inspect(pretrained_vgg9(), [torch.randn(2, 3, 32, 32)])
    assert bundled["largest_speedup"] == pytest.approx(own.speedup)
    assert main(["inspect", "vgg9"]) == 0
    assert "Weights are random here" not in capsys.readouterr().out
    assert main(["inspect", "resnet20"]) == 0
    assert "depend on --weights" in capsys.readouterr().out
