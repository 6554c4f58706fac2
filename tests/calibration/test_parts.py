"""Submodules pruned within a model that is not traced: what calibrates them, what is counted, and what comes back."""

import copy
from typing import Any

import pytest
import torch
from detectors import detector, image_lists
from networks import Chain, images
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import ldrf
from ldrf.calibration.parts import named_parts, read_parts
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.tracing.counting import count_macs

PARTS = ["backbone", "rpn.head", "box"]
QUICK = ldrf.PruneConfig(solver="closed-form", selection="weight", allocation="uniform", metric="output")


def macs_of(model, batch) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch)
    return counter.get_total_flops() // 2


def test_parts_as_a_network_give_what_they_give_in_the_whole():
    model, lists = detector(), image_lists()
    of = read_parts(model, lists, PARTS, ())
    fine, coarse, scores, boxes = of.parts.eval()(*of.batches[0].args)
    x = torch.stack(lists[0])
    assert torch.equal(fine, model.backbone(x)["fine"]) and torch.equal(coarse, model.backbone(x)["coarse"])
    pieces = torch.stack([fine[..., 4:12, 4:12], coarse], 1).flatten(0, 1)  # of both maps, in the size of the smaller
    assert torch.allclose(scores, model.rpn["head"]([pieces])[0], atol=1e-6)
    assert torch.equal(boxes, torch.cat([one["boxes"] for one in model(lists[0])]))
    assert of.whole.macs * 4 == macs_of(model, lists[0])
    assert of.whole.times == {"backbone": 1, "rpn.head": 2.5, "box": 1}
    assert set(of.parts.state_dict()) == set(model.state_dict())  # names are those of the whole


def test_of_many_rows_some_are_kept_and_all_are_counted():
    of = read_parts(detector(100), image_lists(), ["backbone", "box"], ())
    assert of.batches[0].args[1].shape == (4, 32, 8)
    assert of.whole.times["box"] == 100 / 32


def test_a_model_is_pruned_in_place_and_counted_whole(tmp_path):
    model, lists = detector(), image_lists()
    before = copy.deepcopy(model.state_dict())
    result = ldrf.prune(model, iter(lists), speedup=1.5, parts=PARTS, config=QUICK, out=tmp_path / "slim")
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert set(result.widths) == {"backbone.conv1", "backbone.conv3", "rpn.head.conv", "box.0"}
    assert result.parts == tuple(PARTS) and "pruned in it: backbone, rpn.head, box" in str(result)
    assert result.macs == tuple(macs_of(m, lists[0]) // 4 for m in (model, result.model)) and result.speedup >= 1.5
    other = image_lists(1, 3, (20, 24))[0]
    slim: Any = ldrf.load(tmp_path / "slim", detector())
    assert all(torch.equal(a["boxes"], b["boxes"]) for a, b in zip(result.model(other), slim(other), strict=True))
    assert slim.rpn["head"].conv.out_channels == result.widths["rpn.head.conv"]
    result.model.train()(lists[0])["loss"].backward()


def test_slim_parts_are_nearer_to_the_dense_model_than_cut_ones():
    model, lists = detector(), image_lists(8, 8)
    result = ldrf.prune(model, lists, keep={"backbone.conv1": 0.5, "rpn.head.conv": 0.5}, parts=PARTS)
    assert result.held_out is not None and result.held_out.reconstructed < result.held_out.cut
    assert {h.name for h in result.history if h.error < h.cut_error} >= {"backbone.conv1", "rpn.head.conv"}


def test_what_a_budget_scores_is_the_whole_model():
    model, lists = detector(), image_lists()
    seen = []

    def evaluate(whole):
        seen.append(whole(lists[0])[0]["boxes"].shape)
        return 80.0

    result = ldrf.prune(model, lists, parts=["backbone"], max_drop=1.0, evaluate=evaluate, config=QUICK)
    assert len(seen) == 1 + sum(trial.drop == 0 for trial in result.tried) > 1 and set(seen) == {(5, 6)}
    with pytest.raises(LdrfError, match="With parts, max_drop= needs evaluate="):
        ldrf.prune(model, lists, parts=["backbone"], max_drop=1.0)


def test_batches_of_the_most_frequent_shape_calibrate_and_the_others_check():
    lists = [*image_lists(1, 4, (24, 16)), *image_lists(3)]
    with pytest.warns(LdrfWarning, match="inputs of 2 shapes: 3 of 4 batches have the most frequent one"):
        of = read_parts(detector(), lists, ["backbone"], ())
    assert len(of.batches) == 3 and len(of.others) == 1 and of.example.args[0][0].shape == (3, 16, 16)


class Tied(nn.Module):
    """Its second half reads with a weight of the first."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
        self.last = nn.Linear(6, 8)
        first: Any = self.first[0]
        self.last.weight = first.weight

    def forward(self, x, table):
        return self.last(x) + self.first(x * table).sum()


def test_what_others_share_keeps_its_width_and_what_does_not_follow_the_batch_is_a_constant():
    model, table = Tied(), torch.rand(1, 6)
    batches = [(torch.randn(8, 6, generator=torch.Generator().manual_seed(i)), table) for i in range(2)]
    result = ldrf.prune(model, batches, widths={"first.2": 3}, parts=["first"], ignore=["last"])
    assert result.widths == {"first.2": 3}
    assert next(s.reason for s in result.skipped if s.name == "first.0") == "it is ignored"
    slim: Any = result.model
    assert slim.last.weight is slim.first[0].weight


def test_a_tensor_that_is_the_same_in_all_batches_is_no_input():
    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Chain()
            self.part.register_forward_pre_hook(lambda _, args: (args[0] + args[1],))

        def forward(self, x):
            return self.part(x, torch.ones(1, 3, 8, 8))

    model = Added().eval()
    batches = [images(4, 0), images(4, 1)]
    of = read_parts(model, batches, ["part"], ())
    assert [len(b.args) for b in of.batches] == [1, 1]
    assert torch.equal(of.parts(*of.batches[0].args)[0], model(batches[0]))


def test_a_model_that_could_be_traced_whole_costs_the_same_by_its_only_part():
    model = nn.Sequential(Chain(), nn.Linear(5, 2)).eval()
    x = images(16)
    whole = ldrf.prune(model, [x], widths={"0.conv1": 6}, config=QUICK)
    part = ldrf.prune(model, [x], widths={"0.conv1": 6}, config=QUICK, parts=["0"])
    assert part.macs == whole.macs == (count_macs(model, part.example), count_macs(part.model, part.example))
    assert part.parameters == whole.parameters and part.example.args[0].shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["back"], "Unknown part 'back' in parts=: expected names of submodules, such as backbone, rpn, box"),
        (["rpn.head", "rpn.head.conv"], "'rpn.head.conv' in parts= lies within 'rpn.head'"),
        ([], "must name at least one submodule"),
        (["rpn"], "The part 'rpn' is not called by the model"),
    ],
)
def test_wrong_parts_are_told(parts, text):
    with pytest.raises(LdrfError, match=text):
        ldrf.prune(detector(), image_lists(1), speedup=1.5, parts=parts)


def test_a_single_name_is_a_part():
    assert list(named_parts(detector(), "backbone")) == ["backbone"]


def test_a_latency_is_refused():
    with pytest.raises(LdrfError, match="A latency is that of a whole model"):
        ldrf.prune(detector(), image_lists(1), latency=1.5, parts=["backbone"])


def test_a_part_with_too_little_to_read_is_told():
    with pytest.raises(LdrfError, match="The part 'box' must read a row per example at least. Got 0 rows"):
        ldrf.prune(detector(0), image_lists(1), speedup=1.5, parts=["backbone", "box"])
