"""Multiply-accumulates and parameters are counted as by hand."""

import torch
import torch.nn.functional as F
from detectors import detector, image_lists
from fixed_batches import Folded
from networks import images
from torch import Tensor, nn

from ldrf.inputs import Inputs
from ldrf.tracing.counting import count_call, count_macs, count_parameters, plain_attention


def test_macs_of_layers_are_weights_times_positions():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4), nn.Flatten()
    )
    model.append(nn.Linear(8 * 4, 5))
    inputs = Inputs((images(7),), {})
    assert count_macs(model, inputs) == 16 * 8 * 3 * 9 + 4 * 8 * 2 * 9 + 32 * 5
    assert count_parameters(model) == (8 * 3 * 9 + 8) + (8 * 2 * 9 + 8) + (32 * 5 + 5)
    assert next(model.parameters()).device.type == "cpu"  # the model itself stays where it is


class OwnTensor(nn.Module):
    """Its code makes a tensor on the CPU, so it cannot be counted without data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x * torch.tensor([1.0, 2.0, 3.0, 4.0], device="cpu"))


def test_a_model_that_needs_data_is_counted_on_data():
    assert count_macs(OwnTensor(), Inputs((torch.randn(6, 4),), {})) == 12


class Attends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


def test_attention_counts_its_two_products():
    assert count_macs(Attends(), Inputs((torch.randn(2, 3, 5, 4),), {})) == 2 * 3 * 5 * 5 * 4


def test_the_fast_path_of_attention_is_off_within_and_as_before_afterwards():
    before = torch.backends.mha.get_fastpath_enabled()
    with plain_attention():
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled() == before


def test_a_call_is_counted_as_it_is_made():
    model, lists = detector(), image_lists(1, 2)
    fine, coarse = 256 * (12 * 3 * 9 + 8 * 12 * 9), 64 * (10 * 8 * 9 + 8 * 10)
    scores, boxes = (256 + 64) * (16 * 8 * 9 + 16), 5 * (8 * 14 + 14 * 6)
    assert count_call(model, Inputs((lists[0],), {})) == 2 * (fine + coarse + scores + boxes)


def test_a_batch_of_fixed_size_is_counted_whole_and_shared_out():
    counted = count_macs(Folded(), Inputs((torch.randn(4, 5, 6),), {}, fixed=True))
    assert counted == 5 * (6 * 12 + 12 * 10) + 10 * 4
