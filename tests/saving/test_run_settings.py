"""Everything that decides how a run ends is noted, and runs that differ in it are told apart."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from networks import Chain, images, make

from ldrf.calibration.network import read_network
from ldrf.config import PruneConfig
from ldrf.errors import LdrfError
from ldrf.saving.run_settings import compare, described
from ldrf.units.targets import Target

CONFIG = PruneConfig(chunk=16)


@pytest.fixture(scope="module")
def settings(network):
    return described(network(Chain), Target("speedup", 2.0), "ldrf", CONFIG, None)


def test_settings_are_ready_for_json(settings):
    assert json.loads(json.dumps(settings)) == settings
    assert settings["class"] == "Chain" and settings["target"] == {"speedup": 2.0} and settings["images"] == 48


def test_the_same_settings_may_go_on(settings, tmp_path):
    compare(tmp_path, settings, copy.deepcopy(settings))
    other = copy.deepcopy(settings)
    other["config"]["memory"] = 1
    compare(tmp_path, settings, other)  # memory changes no result


@pytest.mark.parametrize(
    ("group", "name", "value", "words"),
    [
        (None, "method", "random", 'method is "ldrf" here and was "random"'),
        ("target", "speedup", 3.0, "speedup is 2.0 here and was 3.0"),
        ("config", "rate", None, "rate is .* here and was not given"),
        ("checksums", "inputs", "0" * 64, "the checksum of the inputs is [0-9a-f]{12} here and was 000000000000 in"),
        ("versions", "torch", "1.0", 'torch is ".*" here and was "1.0"'),
    ],
)
def test_every_difference_is_named(settings, tmp_path, group, name, value, words):
    other = copy.deepcopy(settings)
    (other if group is None else other[group])[name] = value
    with pytest.raises(LdrfError, match=f"holds a run with other settings: {words}"):
        compare(tmp_path, settings, other)


def test_checksums_know_the_images_but_not_the_chunks():
    def checksums(batch: torch.Tensor, chunk: int, labels: torch.Tensor | None = None) -> dict[str, str]:
        net = read_network(make(Chain), [batch], (), replace(CONFIG, chunk=chunk))
        return described(net, Target("speedup", 2.0), "ldrf", CONFIG, labels)["checksums"]

    x = images(8)
    first = checksums(x, 8)
    assert checksums(x, 4) == first
    swapped = checksums(x.flip(0), 8)
    assert swapped["inputs"] != first["inputs"] and swapped["weights"] == first["weights"]
    assert checksums(x, 8, torch.zeros(8))["inputs"] != first["inputs"]
