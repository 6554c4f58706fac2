"""What a trace says of the whole network: which calls share a weight, and which depend on the images."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import pytest
import torch
from torch import Tensor, nn

import ldrf
from ldrf.inputs import Inputs
from ldrf.tracing.interpreter import folded, run
from ldrf.tracing.lean_run import input_values
from ldrf.tracing.trace import trace


def test_calls_of_a_shared_weight_are_counted():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(self.fc(self.fc(x)))

    graph = trace(Shared().eval(), Inputs((torch.randn(3, 4),), {}))
    assert graph.called["fc.weight"] == 3
    assert [layer.name for layer in graph.layers] == ["fc"] * 3


class FixedTable(nn.Module):
    """A small network reads a table that the model keeps, as relative positions are made in SwinV2."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1, 7, 2))
        self.table_net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        self.net = nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + self.table_net(self.table).flatten(1))


@pytest.mark.slow
def test_what_does_not_depend_on_the_images_is_no_layer():
    model = FixedTable().eval()
    assert [layer.name for layer in trace(model, Inputs((torch.randn(2, 7),), {})).layers] == ["net.0", "net.2"]
    reasons = {s.name: s.reason for s in ldrf.inspect(model, [torch.randn(8, 7)]).skipped}
    assert reasons["table_net.0"] == "it reads tensors of the model, not its inputs"
    result = ldrf.prune(model, [torch.randn(64, 7)], widths={"net.0": 5}, config=ldrf.PruneConfig(steps=3))
    assert result.widths == {"net.0": 5}


def test_images_lie_with_their_channels_last_unless_a_call_names_places_in_memory():
    class Windows(nn.Module):
        def forward(self, x):
            return x.as_strided((len(x), 2, 3), (192, 64, 1))

    x = torch.randn(2, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), Windows()).eval()
    graph = trace(model, Inputs((x,), {}))
    assert not graph.takes_channels_last
    values = run(graph, folded(graph, model), graph.nodes, input_values(graph, Inputs((x,), {})))
    torch.testing.assert_close(values[graph.outputs[0]], model(x))
    plain = trace(nn.Sequential(nn.Conv2d(3, 3, 1)).eval(), Inputs((x,), {}))
    (image,) = input_values(plain, Inputs((x,), {})).values()
    assert image.is_contiguous(memory_format=torch.channels_last) and torch.equal(image, x)
