"""Settings of a release: one target, plain values both ways, and mistakes told with the nearest name."""

import pytest

import ldrf
from ldrf.errors import LdrfError
from ldrf.shipping.recipe import as_yaml, read_config, read_yaml


def test_settings_come_back_from_yaml_as_they_were(tmp_path):
    config = ldrf.ShipConfig(
        latency="4 ms",
        int8=True,
        deployment=ldrf.Deployment("openvino", 2, 2),
        prune=ldrf.PruneConfig(steps=3, memory="1GiB"),
        finetune=None,
    )
    path = tmp_path / "ship.yaml"
    path.write_text(as_yaml(config.as_dict()))
    assert read_config(read_yaml(path)) == config


def test_little_is_enough():
    config = read_config({"speedup": 2, "finetune": {"epochs": 3}, "prune": {"steps": 5}})
    assert config.target == {"speedup": 2} and config.finetune == ldrf.FinetuneConfig(epochs=3)
    assert config.prune == ldrf.PruneConfig(steps=5) and config.deployment.runtime == "onnxruntime"
    assert read_config({"speedup": 2, "finetune": False}).finetune is None
    assert read_config({"speedup": 2, "finetune": True}).finetune == ldrf.FinetuneConfig()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "exactly one of latency, speedup, params, max_drop. Got none"),
        ({"speedup": 2, "latency": 2}, "Got latency and speedup"),
        ({"speedup": 2, "int_8": True}, "no setting 'int_8' under 'ship': did you mean 'int8'"),
        ({"speedup": 2, "prune": {"step": 5}}, "no setting 'step' under 'prune': did you mean 'steps'"),
        ({"speedup": 2, "prune": {"steps": "5"}}, "'prune.steps' must be a whole number. Got '5'"),
        ({"speedup": 2, "prune": {"rate": "fast"}}, "'prune.rate' must be a number. Got 'fast'"),
        ({"speedup": 2, "int8": "yes"}, "'ship.int8' must be true or false. Got 'yes'"),
        ({"speedup": 2, "prune": {"joint_rate": "high"}}, "'prune.joint_rate' must be a number. Got 'high'"),
        ({"speedup": 2, "prune": {"augment": 1}}, "'prune.augment' must be true or false. Got 1"),
        ({"speedup": 2, "prune": 3}, "'prune' must be settings by name. Got 3"),
        ({"speedup": 2, "held_out": 1.0}, "'held_out' must lie between 0 and 1"),
        ({"speedup": 2, "max_int8_drop": -1}, "'max_int8_drop' must lie from 0 to 100"),
        ({"speedup": 2, "int8": True, "deployment": {"runtime": "torch"}}, "made for onnxruntime or openvino"),
        ({"speedup": 2, "qqq": 1}, "no setting 'qqq' under 'ship'; there are latency"),
    ],
)
def test_mistakes_are_one_sentence(values, words):
    with pytest.raises(LdrfError) as told:
        read_config(values)
    assert words in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [1", "is not YAML"), ("- 1\n- 2\n", "must hold settings by name"), (None, "Cannot read")],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path, text, words):
    path = tmp_path / "ship.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LdrfError, match=words):
        read_yaml(path)
