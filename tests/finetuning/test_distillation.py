"""Where two networks can be compared inside, and how far apart they are."""

import copy

import pytest
import torch
from networks import Chain, Residual, images, make

from ldrf.finetuning.distillation import embedding_distance, meeting_points, near_points, output_distance, taps
from ldrf.inputs import Inputs


@pytest.mark.slow
def test_blocks_that_kept_their_shape_are_meeting_points(pruned):
    inputs = Inputs((images(2),), {})
    assert meeting_points(make(Residual), pruned(Residual).model, inputs) == ("block1", "block2")
    assert meeting_points(make(Chain), pruned(Chain).model, inputs) == ()


def test_layers_that_kept_their_width_are_meeting_points_of_a_plain_chain_behind_their_norms():
    inputs = Inputs((images(2),), {})
    assert meeting_points(make(Chain), Chain(first=6).eval(), inputs) == ("bn2",)
    assert meeting_points(make(Chain), Chain(second=8).eval(), inputs) == ("bn1",)


def test_a_layer_with_an_activation_in_place_is_compared_behind_it():
    dense, slim = (
        torch.nn.Sequential(
            torch.nn.Linear(4, width), torch.nn.Linear(width, 6), torch.nn.ReLU(inplace=True), torch.nn.Linear(6, 2)
        )
        for width in (8, 3)
    )
    x = torch.randn(5, 4)
    points = meeting_points(dense, slim, Inputs((x,), {}))
    assert points == ("1",)
    with taps(slim, points) as mine:
        slim(x)
    with torch.no_grad(), taps(dense, points) as theirs:
        dense(x)
    assert torch.equal(theirs["1"], dense[:2](x).relu())
    embedding_distance(mine, theirs).backward()
    reached, behind = (slim.get_parameter(name).grad for name in ("0.weight", "3.weight"))
    assert reached is not None and float(reached.abs().sum()) > 0 and behind is None


def test_a_block_and_the_last_one_inside_it_count_once():
    model = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Sequential(torch.nn.ReLU())),
        torch.nn.Linear(4, 2),
    )
    assert meeting_points(model, copy.deepcopy(model), Inputs((torch.randn(3, 4),), {})) == ("0", "0.0")


class Stream(torch.nn.Module):
    """A block whose branch goes onto a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = torch.nn.Sequential(torch.nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch(x)


def test_a_block_with_other_neurons_and_a_branch_that_makes_up_for_its_stream_are_no_points():
    torch.manual_seed(0)
    dense = torch.nn.Sequential(*(Stream() for _ in range(4)), torch.nn.Sequential(torch.nn.Linear(4, 4))).eval()
    slim, inputs = copy.deepcopy(dense), Inputs((torch.randn(64, 4),), {})
    for index in range(4):
        weight = slim.get_parameter(f"{index}.branch.0.weight")
        weight.data += 0.05 * torch.randn_like(weight)
    turned = slim.get_parameter("4.0.weight")
    turned.data = turned.data.flip(0)
    points = ("0", "0.branch", "1", "2", "3", "4")
    assert near_points(dense, slim, points, inputs) == ("0", "1", "2", "3")
    assert near_points(dense, slim, (), inputs) == ()
    assert near_points(dense, copy.deepcopy(dense), points, inputs) == points
    late = copy.deepcopy(dense)
    late.get_parameter("3.branch.0.weight").data *= 0.8
    assert near_points(dense, late, ("0", "1", "2", "3"), inputs) == ("0", "1", "2", "3"), "most are as they were"


def test_taps_are_gone_afterwards():
    model = make(Residual)
    with taps(model, ["block1"]) as found:
        model(images(2))
    assert found["block1"].shape == (2, 8, 8, 8)
    found.clear()
    model(images(2))
    assert not found


def test_distances_are_zero_for_the_same_and_relative_otherwise():
    scores, maps = torch.randn(6, 5), torch.randn(6, 3, 4)
    assert float(output_distance(scores, scores)) == pytest.approx(0, abs=1e-6)
    assert float(output_distance((maps, scores), (maps, scores))) == 0
    moved = scores - 3 * scores.std(correction=0)
    assert float(output_distance(moved, scores)) == pytest.approx(9, rel=1e-4)
    moved = maps + maps.std(correction=0)
    assert float(embedding_distance({"a": moved, "b": maps}, {"a": maps, "b": maps})) == pytest.approx(1.0, rel=1e-4)
    assert float(embedding_distance({}, {})) == 0
