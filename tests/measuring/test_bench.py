"""Both networks are timed in every case, and every layer's MACs and time are reported."""

import json
import math

import pytest
from fixed_batches import Counted, Fixed
from networks import Chain, TwoInputs, images, make, two_inputs

from ldrf.errors import LdrfError
from ldrf.inputs import Inputs, repeated
from ldrf.measuring.bench import bench
from ldrf.tracing.counting import count_macs, count_parameters

QUICK = 0.003
INPUTS = Inputs((images(2),), {})


@pytest.fixture(scope="module")
def found(pruned):
    return bench(make(Chain), pruned(Chain).model, INPUTS, batches=(1, 4), seconds=QUICK)


def test_every_case_is_measured_for_both(found):
    assert [(t.network, t.batch, t.threads) for t in found.timings] == [
        ("dense", 1, 1),
        ("slim", 1, 1),
        ("dense", 4, 1),
        ("slim", 4, 1),
    ]
    for t in found.timings:
        assert 0 < t.low <= t.median <= t.high and t.throughput == pytest.approx(1000 * t.batch / t.median)


def test_layers_add_up_to_the_networks_macs(found, pruned):
    result = pruned(Chain)
    assert [x.name for x in found.layers] == ["conv1", "conv2", "fc"]
    for side, model in enumerate((make(Chain), result.model)):
        assert sum(x.macs[side] for x in found.layers) == count_macs(model, INPUTS) == result.macs[side]
        whole = next(t for t in found.timings if t.batch == 4 and t.network == ("dense", "slim")[side])
        layers = sum(x.milliseconds[side] for x in found.layers)
        assert found.rest[side] == pytest.approx(whole.median - layers)
    assert found.layers[0].theory == 2.0  # half of its filters
    assert found.dense.parameters == count_parameters(make(Chain))
    assert found.slim.file < found.dense.file and found.slim.memory < found.dense.memory


def test_it_is_shown_as_tables_and_as_json(found):
    text = str(found)
    for word in ("MACs", "bytes of memory", "dense ms", "faster", "conv2", "all else", "lost"):
        assert word in text
    told = json.loads(json.dumps(found.as_dict()))
    assert told["timings"][1]["network"] == "slim" and told["layers"][0]["theory"] == 2.0
    assert math.isfinite(told["timings"][0]["throughput"]) and told["dense"]["macs"] == found.dense.macs


@pytest.mark.slow
def test_onnxruntime_is_timed_too(pruned):
    inputs = Inputs(two_inputs(2), {})
    found = bench(
        make(TwoInputs), pruned(TwoInputs).model, inputs, batches=(2,), backends=("onnxruntime",), seconds=QUICK
    )
    assert [(t.network, t.backend) for t in found.timings] == [("dense", "onnxruntime"), ("slim", "onnxruntime")]
    assert all(math.isfinite(ms) for ms in found.rest)


def test_examples_are_repeated_to_any_batch_size():
    rows = repeated(INPUTS, 5).args[0]
    assert rows.shape[0] == 5 and (rows[4] == rows[0]).all() and (rows[3] == rows[1]).all()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"batches": (0,)}, "'batches' must be whole numbers from 1 up. Got \\[0\\]"),
        ({"threads": ()}, "'threads' must be"),
        ({"backends": ("tensorrt",)}, "among torch, onnxruntime. Got \\['tensorrt'\\]"),
        ({"seconds": 0}, "'seconds' must be above 0"),
    ],
)
def test_cases_that_make_no_sense_are_refused(case, words):
    model = make(Chain)
    with pytest.raises(LdrfError, match=words):
        bench(model, model, INPUTS, **case)


def test_batches_that_a_network_cannot_take_are_told():
    model = make(Fixed)
    with pytest.raises(LdrfError, match=r"Fixed cannot take a batch of 1: name sizes that it takes by batches="):
        bench(model, model, Inputs((images(8, shape=(3, 4, 4)),), {}), batches=(1, 8), seconds=0.01)
    model, fixed = make(Counted), Inputs((images(8, shape=(3, 4, 4)),), {}, fixed=True)
    with pytest.raises(LdrfError, match="Counted cannot take a batch of 3"):  # its file cannot
        bench(model, model, fixed, batches=(8, 3), backends=("onnxruntime",), seconds=0.01)
    timed = bench(make(Fixed), make(Fixed), fixed, batches=(8,), seconds=0.01)
    assert {t.batch for t in timed.timings} == {8} and timed.dense.macs == timed.slim.macs
