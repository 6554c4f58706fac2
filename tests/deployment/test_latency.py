"""What was measured goes through JSON and comes back."""

import json

import pytest

from ldrf.deployment.latency import Latency, LayerTime

LATENCY = Latency(
    "onnxruntime",
    "1.0",
    1,
    2,
    10.0,
    4.0,
    0.001,
    (LayerTime("conv", 8.0, 2.0), LayerTime("fc", 1.0, 1.0)),
    ((2.0, 0.1),),
)


def test_it_comes_back_from_json():
    assert Latency.from_dict(json.loads(json.dumps(LATENCY.as_dict()))) == LATENCY


def test_the_rest_is_what_the_layers_lack():
    assert LATENCY.ratio == 2.5 and LATENCY.rest == pytest.approx((1.0, 1.0))


def test_the_table_has_every_layer_and_the_rest():
    text = str(LATENCY)
    assert "2.50x faster (10 ms -> 4 ms) in onnxruntime 1.0, batch 1, 2 threads" in text
    assert "80%" in text and "4.00x" in text and "all else" in text and "0.1 at 2x" in text
