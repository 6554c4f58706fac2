"""A cut ONNX file is that of the cut model, without exporting it again."""

import copy

import pytest
import torch
from networks import Inverted, VitBlock, images

from ldrf.deployment.onnx_cutting import cut_onnx
from ldrf.deployment.onnx_export import export_onnx, onnx_session
from ldrf.inputs import Inputs
from ldrf.tracing.export import working_copy
from ldrf.units.indices import surviving
from ldrf.units.module_surgery import cut_plainly

pytest.importorskip("onnxruntime")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Inverted, VitBlock])
def test_it_computes_what_the_cut_model_does(kind, network, tmp_path):
    import onnx

    net, x = network(kind), images(2)
    dense = working_copy(net.model)
    export_onnx(dense, Inputs((x,), {}), tmp_path / "dense.onnx")
    kept = {unit.name: torch.arange(unit.width // 2) for unit in net.units}
    slim = copy.deepcopy(dense)
    cut_plainly(slim, net.units, kept)
    whole = onnx.load(tmp_path / "dense.onnx")
    cut = cut_onnx(whole, surviving(net.units, kept), dense.state_dict(), len(x))
    session = onnx_session(cut.SerializeToString(), 1)
    output = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(output), slim(x), atol=1e-4)
    assert cut.ByteSize() < whole.ByteSize()
