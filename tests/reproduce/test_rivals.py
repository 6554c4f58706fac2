"""Methods outside the library: told what to reach, refused with the way out where they are not installed."""

from importlib.util import find_spec

import pytest
from networks import Chain, Residual, images, make, settled
from torch import nn

from ldrf.data.plugins import load_factory
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.reproduce import rivals
from ldrf.reproduce.rivals import BENCHMARKS, COMPARED, EXTERNAL, prune_externally
from ldrf.tracing.counting import count_macs


def test_every_external_method_has_a_title_and_a_colour_and_an_adapter():
    assert len({method.colour for method in COMPARED.values()}) == len(COMPARED) and EXTERNAL.keys() <= COMPARED.keys()
    for known in EXTERNAL.values():
        assert callable(load_factory(f"{BENCHMARKS}/{known.adapter}"))


@pytest.mark.slow
def test_torch_pruning_meets_the_speedup_and_leaves_the_model_as_it_was():
    pytest.importorskip("torch_pruning")
    model, x = make(Residual), images(8)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    slim = prune_externally("torch-pruning-l1", model, [x], 1.3, {})
    dense, cut = (count_macs(m, Inputs((x[:1],), {})) for m in (model, slim))
    assert 1.3 <= dense / cut < 1.8 and slim(x).shape == model(x).shape
    assert all((tensor == before[name]).all() for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("method", "extra"), [("torch-pruning-l1", "bench"), ("aimet", "aimet")])
def test_a_method_that_is_not_installed_is_refused_with_what_to_install(method, extra, monkeypatch):
    def prune(*told):
        raise ModuleNotFoundError("No module named 'missing'", name="missing")

    monkeypatch.setattr(rivals, "load_factory", lambda _: prune)
    with pytest.raises(LdrfError, match=rf"needs missing: pip install 'ldrf\[{extra}\]'"):
        prune_externally(method, nn.Identity(), [], 2.0, {})


@pytest.mark.slow
def test_aimet_is_told_shares_of_the_inputs_of_convolutions():
    ratios = load_factory(f"{BENCHMARKS}/with_aimet.py:input_ratios")
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 4)
    )
    batch = [images(4, shape=(3, 8, 8))]
    assert ratios(settled(model), batch, {"0": 6, "2": 3}) == {"2": 6.5 / 8}  # a linear layer reads the others
    with pytest.raises(LdrfError, match="nothing of the kind"):
        ratios(model, batch, {"0": 8, "2": 3})


@pytest.mark.skipif(find_spec("aimet_torch") is None, reason="AIMET is not installed: pip install '.[aimet]'")
@pytest.mark.parametrize("width", [4, 7])
def test_aimet_reaches_the_widths_and_leaves_nothing_behind(width, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, x = make(Chain), images(32)
    slim = prune_externally("aimet", model, [x], 2.0, {"conv1": width})
    assert slim.get_submodule("conv1").out_channels == width and slim(x).shape == model(x).shape
    assert not list(tmp_path.iterdir())
