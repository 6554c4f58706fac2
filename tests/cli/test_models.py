"""Models by name: each form works, and each mistake is one sentence."""

import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import ldrf
from ldrf.cli.models import build, load_weights, open_model
from ldrf.cli.vision import import_vision
from ldrf.errors import LdrfError
from ldrf.zoo.cifar_resnet import resnet20

FILE = """
from torch import nn
def net(): return nn.Linear(2, 3)
def number(): return 3
def broken(): raise KeyError("oh")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(FILE)
    return tmp_path


def test_a_python_file_names_a_model(folder):
    named = open_model("nets.py:net")
    assert isinstance(named.model, nn.Linear) and not named.model.training
    assert named.source == {"model": "nets.py:net", "weights": None}
    assert isinstance(open_model(f"{folder}/nets.py:net").model, nn.Linear)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "Unknown model 'nothing': expected vgg9, resnet20, resnet56, torchvision:NAME"),
        ("nothing.py:net", "No Python file 'nothing.py'"),
        ("nets.py:other", "has no function 'other'"),
        ("nets.py:number", r"must return a torch.nn.Module. Got int instead"),
        ("nets.py:broken", "failed with KeyError"),
        ("bad.py:net", "Running 'bad.py' failed with SyntaxError"),
        ("resnet20", "comes without weights: add --weights"),
        ("timm:", "Unknown model 'timm:'"),
    ],
)
def test_wrong_names_are_one_sentence(folder, name, words):
    (folder / "bad.py").write_text("def (")
    with pytest.raises(LdrfError, match=words):
        open_model(name)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s}, lambda s: {"model": s, "epoch": 3}])
def test_pth_weights_are_loaded_plain_or_wrapped(folder, wrap):
    wanted = nn.Linear(2, 3)
    torch.save(wrap({f"module.{k}": t for k, t in wanted.state_dict().items()}), "w.pth")
    named = open_model("nets.py:net", "w.pth")
    assert torch.equal(named.model.state_dict()["weight"], wanted.weight)
    assert named.source["weights"] == "w.pth"


def test_half_precision_safetensors_become_float32(folder):
    wanted = resnet20()
    state = {k: t.half() if t.is_floating_point() else t for k, t in wanted.state_dict().items()}
    save_file({k: t for k, t in state.items() if "num_batches" not in k}, "w.safetensors")
    model = open_model("resnet20", "w.safetensors").model
    assert torch.equal(model.state_dict()["conv1.weight"], wanted.conv1.weight.half().float())


class Harmful:
    def __reduce__(self):
        return (print, ("was run",))


def test_wrong_weights_are_one_sentence(folder, capsys):
    model = nn.Linear(2, 3)
    with pytest.raises(LdrfError, match=r"No weights file 'none\.pth'"):
        load_weights(model, "none.pth")
    (folder / "bad.safetensors").write_bytes(b"xx")
    with pytest.raises(LdrfError, match="not a readable safetensors file"):
        load_weights(model, "bad.safetensors")
    torch.save({"weight": Harmful()}, "harm.pth")
    with pytest.raises(LdrfError, match="weights_only=True"):
        load_weights(model, "harm.pth")
    assert capsys.readouterr().out == ""
    torch.save([1, 2], "list.pth")
    with pytest.raises(LdrfError, match="holds no state dict"):
        load_weights(model, "list.pth")
    save_file({"weight": torch.zeros(3, 9), "surplus": torch.zeros(1)}, "misfit.safetensors")
    expected = (
        r"do not fit Linear: 1 missing \(such as 'bias'\), 1 unknown .*'surplus'.*, 1 of another shape .*'weight'"
    )
    with pytest.raises(LdrfError, match=expected):
        load_weights(model, "misfit.safetensors")


@pytest.mark.parametrize(("name", "kind"), [("torchvision:mobilenet_v2", "MobileNetV2"), ("timm:resnet10t", "ResNet")])
def test_libraries_name_models(name, kind):
    assert type(build(name)).__name__ == kind


@pytest.mark.parametrize("kind", ["torchvision", "timm"])
def test_unknown_library_models_are_one_sentence(kind):
    with pytest.raises(LdrfError, match=f"{kind} has no model 'resnet5000'"):
        build(f"{kind}:resnet5000")


def test_a_near_name_is_suggested():
    with pytest.raises(LdrfError, match=r"torchvision has no model 'resnet81': did you mean resnet\d+"):
        build("torchvision:resnet81")


def test_random_weights_are_the_same_every_time():
    one, other = (open_model("resnet20", "random").model.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_missing_library_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(LdrfError, match=r"pip install 'ldrf\[vision\]'"):
        import_vision("timm")


# Result folders


@pytest.fixture
def result(folder, monkeypatch):
    """A folder that the library would know as a result, made from what ``record`` says."""
    record: dict = {"source": {"model": "resnet20", "weights": "w.pth"}}
    monkeypatch.setattr("ldrf.cli.models.read_record", lambda _: record)
    monkeypatch.setattr(ldrf, "load", lambda _, model: model)
    (folder / "slim").mkdir()
    return record


def test_a_result_folder_is_a_model(result):
    named = open_model("slim")
    assert type(named.model).__name__ == "CifarResNet"
    assert named.source == {"model": "resnet20", "weights": "w.pth"}


def test_a_result_folder_has_its_own_weights(result):
    with pytest.raises(LdrfError, match="has its own weights: leave --weights out"):
        open_model("slim", weights="w.pth")


def test_a_result_folder_does_not_decide_which_code_runs(result):
    result["source"]["model"] = "nets.py:net"
    with pytest.raises(LdrfError, match="to run that file, add --architecture nets.py:net"):
        open_model("slim")
    assert isinstance(open_model("slim", architecture="nets.py:net").model, nn.Linear)


def test_a_result_folder_without_a_name_needs_one(result):
    result["source"] = None
    with pytest.raises(LdrfError, match="add --architecture NAME"):
        open_model("slim")
    assert open_model("slim", architecture="resnet20").source["model"] == "resnet20"


def test_architecture_goes_with_result_folders_only(folder):
    with pytest.raises(LdrfError, match="'nets.py:net' is not one"):
        open_model("nets.py:net", architecture="vgg9")
