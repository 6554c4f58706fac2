"""An exported file computes what the model does at any batch size, needs no ldrf, and is written all or nothing."""

import subprocess
import sys

import pytest
import torch
from fixed_batches import Counted, Fixed, Scaled, batches
from networks import Branches, Chain, Tied, TwoInputs, images, make, two_inputs
from safetensors.torch import load_file
from torch import Tensor, nn

import ldrf
from ldrf.deployment.onnx_export import onnx_session
from ldrf.inputs import Inputs, made_up_inputs

LOAD = """
import sys
sys.modules["ldrf"] = None  # any import of it fails
import torch
model = torch.export.load(sys.argv[1]).module()
x, wanted = torch.load(sys.argv[2])
assert torch.allclose(model(x), wanted, atol=1e-5)
print("same", len(x))
"""


@pytest.mark.slow
def test_onnx_runs_in_onnxruntime_at_any_batch_size(pruned, tmp_path):
    import onnxruntime

    result = pruned(Chain)
    done = ldrf.export(result, tmp_path / "new" / "slim.onnx")
    assert done.format == "onnx" and done.error < 1e-4 and done.bytes == done.path.stat().st_size
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 3, 8, 8] and session.get_outputs()[0].name == "output"
    for rows in (1, 7):
        x = images(rows, seed=3)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), result.model(x).detach(), rtol=1e-4, atol=1e-4)
    assert [p.name for p in done.path.parent.iterdir()] == ["slim.onnx"]


@pytest.mark.slow
def test_onnx_takes_several_inputs_by_name(pruned, tmp_path):
    import onnxruntime

    model = pruned(TwoInputs).model
    done = ldrf.export(model, tmp_path / "slim.onnx", example=two_inputs(4))
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    assert {i.name: i.shape[0] for i in session.get_inputs()} == {"image": "batch", "vector": "batch"}
    image, vector = two_inputs(5, seed=8)
    found = session.run(None, {"image": image.numpy(), "vector": vector.numpy()})
    for mine, wanted in zip(found, model(image, vector), strict=True):
        torch.testing.assert_close(torch.from_numpy(mine), wanted.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_pt2_loads_in_plain_torch(pruned, tmp_path):
    result = pruned(Chain)
    done = ldrf.export(result, tmp_path / "slim.pt2")
    assert done.format == "pt2" and done.error < 1e-5
    x = images(6, seed=5)
    torch.save((x, result.model(x).detach()), tmp_path / "wanted.pt")
    argv = [sys.executable, "-W", "ignore", "-c", LOAD, str(done.path), str(tmp_path / "wanted.pt")]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.stdout == "same 6\n", ran.stderr


@pytest.mark.slow
def test_pt2_keeps_dicts_and_half_precision(pruned, tmp_path):
    model = pruned(Branches).model.bfloat16()
    try:
        done = ldrf.export(model, tmp_path / "slim.pt2", example=images(4))
    finally:
        model.float()
    loaded = torch.export.load(done.path).module()
    assert set(loaded(images(3).bfloat16())) == {"scores", "near", "wide"}


@pytest.mark.parametrize(
    ("name", "read"),
    [("s.pt", lambda p: torch.load(p, weights_only=True)), ("s.pth", torch.load), ("s.safetensors", load_file)],
)
def test_a_state_dict_is_the_models_own(tmp_path, name, read):
    model = make(Tied)
    done = ldrf.export(model, tmp_path / name, example=images(2))
    assert done.format == "state-dict" and done.error == 0
    state = read(done.path)
    assert all(torch.equal(model.state_dict()[n], t) for n, t in state.items())
    make(Tied, seed=4).load_state_dict(state, strict=name != "s.safetensors")


class ByChance(nn.Module):
    """Gives other outputs each time."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) + torch.rand(3)


def test_a_file_that_differs_from_the_model_is_refused_and_nothing_is_left(tmp_path):
    (tmp_path / "old.pt2").write_text("an earlier file")
    with pytest.raises(ldrf.LdrfError, match="exported ByChance differs from the model by .*, so it is not written"):
        ldrf.export(ByChance(), tmp_path / "old.pt2", example=torch.randn(2, 4))
    assert [p.name for p in tmp_path.iterdir()] == ["old.pt2"]
    assert (tmp_path / "old.pt2").read_text() == "an earlier file"


def test_what_cannot_be_meant_is_refused(pruned, tmp_path, monkeypatch):
    model = pruned(Chain).model
    with pytest.raises(ldrf.LdrfError, match="needs an 'example'"):
        ldrf.export(model, tmp_path / "x.onnx")
    with pytest.raises(ldrf.LdrfError, match=r"must end in one of .onnx, .pt2"):
        ldrf.export(model, tmp_path / "x.tflite")
    with pytest.raises(ldrf.LdrfError, match="must be one of onnx, pt2, state-dict. Got 'tflite'"):
        ldrf.export(model, tmp_path / "x", format="tflite")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ldrf.LdrfError, match="is a folder"):
        ldrf.export(model, tmp_path, format="onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ldrf.LdrfError, match=r"ONNX needs onnxscript: pip install 'ldrf\[onnx\]'"):
        ldrf.export(pruned(Chain), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


def test_described_inputs_come_back_in_shape_and_kind():
    given = Inputs((torch.rand(2, 3, 4).half(), 7), {"ids": torch.zeros(2, 5, dtype=torch.long), "flag": None})
    made = made_up_inputs(given.described(), 6)
    assert made.args[0].shape == (6, 3, 4) and made.args[0].dtype == torch.float16 and made.args[1] == 7
    assert made.kwargs["ids"].shape == (6, 5) and made.kwargs["ids"].dtype == torch.long
    assert made.kwargs["flag"] is None


@pytest.mark.slow
def test_half_precision_is_written_to_onnx_in_float32_with_a_sentence(tmp_path):
    model = nn.DataParallel(make(Chain).to(torch.bfloat16))
    with pytest.warns(ldrf.LdrfWarning, match="in bfloat16, and its ONNX file is written in float32"):
        made = ldrf.export(model, tmp_path / "slim.onnx", example=images(2))
    assert made.error < 1e-4 and next(model.parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [Fixed, Counted, Scaled])
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_model_that_fixes_its_batch_is_written_for_that_size(kind, suffix, tmp_path):
    model, (x,) = make(kind), batches(8, 1)
    with pytest.warns(ldrf.LdrfWarning, match=rf"forward of {kind.__name__} fixes its batch size.* batches of 8 only"):
        written = ldrf.export(model, tmp_path / f"model{suffix}", example=x)
    assert written.error < 1e-5
    if suffix == ".onnx":
        session = onnx_session(str(written.path), 1)
        assert session.get_inputs()[0].shape == [8, 3, 4, 4]
