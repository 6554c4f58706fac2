"""int8: the quantised file answers nearly as the float one, is smaller, and says what it cost."""

import pytest
import torch
from networks import Chain, images, make

import ldrf
from ldrf.deployment import int8
from ldrf.deployment.int8 import quantize, worst_layers
from ldrf.deployment.onnx_export import onnx_runner
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("int8") / "chain.onnx"
    ldrf.export(make(Chain), path, example=images(4))
    return path


def test_the_file_answers_nearly_as_before(file, tmp_path):
    made = quantize(file, [images(32)[:16], (images(32)[16:], torch.zeros(16))], tmp_path / "int8.onnx")
    x = Inputs((images(16, seed=3),), {})
    before, after = (onnx_runner(path, 1)(x)[0] for path in (file, made.path))
    gap = float((before - after).norm() / before.norm())
    assert 0 < gap < 0.05 and made.bytes == made.path.stat().st_size
    layers = worst_layers(file, made.path, [images(8)], 5)
    assert {name for name, _ in layers} == {"conv1", "conv2", "fc"}
    assert all(0 < share < 0.1 for _, share in layers)


def test_seven_bits_where_the_processor_needs_them(file, tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "has_dot_products", lambda: False)
    assert quantize(file, [images(4)], tmp_path / "a.onnx").reduced
    monkeypatch.setattr(int8, "has_dot_products", lambda: True)
    assert not quantize(file, [images(4)], tmp_path / "b.onnx").reduced


def test_other_processors_than_intels_need_no_free_bit(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert int8.has_dot_products()


@pytest.mark.parametrize(
    ("batches", "words"),
    [([], "at least one batch"), ([{"y": images(2)}], "must hold the file's inputs \\(x\\)"), ([3], "Got int")],
)
def test_wrong_batches_are_told_and_nothing_is_written(file, tmp_path, batches, words):
    with pytest.raises(LdrfError, match=words):
        quantize(file, batches, tmp_path / "int8.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_none_is_told(tmp_path):
    (tmp_path / "x.onnx").write_text("no")
    with pytest.raises(LdrfError, match="onnxruntime cannot read"):
        quantize(tmp_path / "x.onnx", [images(2)], tmp_path / "int8.onnx")


def test_a_quantiser_that_is_not_there_is_named(file, tmp_path, monkeypatch):
    with pytest.raises(LdrfError, match="is made for onnxruntime or openvino. Got the runtime 'torch'"):
        quantize(file, [images(2)], tmp_path / "int8.onnx", runtime="torch")

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(int8, "import_module", missing)
    with pytest.raises(LdrfError, match=r"needs NNCF: pip install 'ldrf\[nncf\]'"):
        quantize(file, [images(2)], tmp_path / "int8.onnx", runtime="openvino")
    assert not list(tmp_path.iterdir())
