"""Layers split in two: at full rank the same network, below it the truncated SVD."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

import pytest
import torch
from networks import Chain, Grouped, Mlp, images, make

from ldrf.algebra.decomposition import decompose
from ldrf.errors import LdrfError
from ldrf.planning.split_network import decomposed_copy


@pytest.mark.parametrize(("kind", "names"), [(Chain, ("conv1", "conv2")), (Mlp, ("first", "second"))])
def test_at_full_rank_nothing_changes(kind, names):
    model = make(kind).eval()
    layers = {name: model.get_submodule(name) for name in names}
    split = decomposed_copy(model, {n: decompose(la.weight.detach(), la.bias) for n, la in layers.items()})
    x = images(4)
    torch.testing.assert_close(split(x), model(x), rtol=1e-5, atol=1e-5)
    assert isinstance(split.get_submodule(names[0]), torch.nn.Sequential)
    assert not isinstance(model.get_submodule(names[0]), torch.nn.Sequential), "the model itself is not changed"


def test_below_it_the_product_is_the_truncated_svd():
    model = make(Mlp)
    weight = model.first.weight.detach()
    first, second = decomposed_copy(model, {"first": decompose(weight, model.first.bias, 3)}).first
    u, s, v = torch.linalg.svd(weight.double(), full_matrices=False)
    wanted = (u[:, :3] * s[:3]) @ v[:3]
    torch.testing.assert_close((second.weight @ first.weight).double(), wanted, rtol=1e-4, atol=1e-5)


def test_a_grouped_convolution_is_refused():
    model = make(Grouped)
    name = next(n for n, m in model.named_modules() if isinstance(m, torch.nn.Conv2d) and m.groups > 1)
    weight = model.get_submodule(name).weight.detach()
    with pytest.raises(LdrfError, match=f"Only ungrouped convs and linears can be decomposed. '{name}' is Conv2d"):
        decomposed_copy(model, {name: decompose(weight, None)})
