"""Models that take lists are pruned by the parts that can be traced; an error about others names such parts."""

from typing import Any

import pytest
import torch
from detectors import detector, image_lists
from networks import Chain, images
from torch import nn

import ldrf
from ldrf.calibration.finding_parts import takes_lists, traceable_parts
from ldrf.errors import LdrfError, LdrfWarning


def test_the_largest_submodules_that_can_be_traced_are_found():
    assert traceable_parts(detector(), image_lists(1)) == ["backbone", "box", "rpn.head"]


def test_lists_are_told_from_images_with_labels():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    assert takes_lists(detector(), image_lists(1)) and takes_lists(detector(), [(image_lists(1)[0], [{}] * 4)])
    for batch in (images(3), (images(3), torch.arange(3)), [images(3), images(3)], {"x": [1]}, 3):
        assert not takes_lists(model, [batch])
    assert not takes_lists(model, 3)  # type: ignore[arg-type]


def test_a_detector_is_pruned_without_naming_its_parts():
    lists, quick = image_lists(), ldrf.PruneConfig(solver="closed-form", selection="weight")
    with pytest.warns(LdrfWarning, match="Detector takes lists of tensors, so it is not traced whole: its parts"):
        result = ldrf.prune(detector(), lists, widths={"backbone.conv1": 6, "rpn.head.conv": 8}, config=quick)
    assert result.parts == ("backbone", "rpn.head", "box")
    slim: Any = result.model
    assert slim.backbone.conv1.out_channels == 6 and slim.rpn["head"].conv.out_channels == 8


class Branching(nn.Module):
    """Its code looks at a value, around a network that does not."""

    def __init__(self):
        super().__init__()
        self.body = Chain()

    def forward(self, x):
        return self.body(x) if x.sum().item() > 0 else self.body(-x)


def test_an_error_of_tracing_names_what_can_be_traced():
    with pytest.raises(LdrfError, match=r"torch.export cannot trace Branching.* try parts=\['body'\]"):
        ldrf.prune(Branching(), [images(4)], speedup=1.5)


class Inside(nn.Module):
    """Reads a list of vectors of a single layer: nothing in it can be cut."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, vectors):
        return self.layer(torch.stack([v + 0 for v in vectors if isinstance(vectors, list)]))


def test_a_model_of_lists_without_such_parts_is_told():
    with pytest.raises(LdrfError, match="Inside takes lists of tensors, and no submodule of it"):
        ldrf.prune(Inside(), [[torch.randn(3), torch.randn(3)]], speedup=1.5)


PLAIN = ldrf.PruneConfig(solver="closed-form", joint_steps=0, multiple=1)


@pytest.mark.filterwarnings("ignore::ldrf.errors.LdrfWarning")
def test_inspection_finds_the_parts_that_prune_cuts_at_the_costs_of_the_whole():
    model, batches = detector(), image_lists(6)
    seen = ldrf.inspect(model, batches[:1])
    result = ldrf.prune(model, batches, speedup=1.3, config=PLAIN)
    assert seen.parts == result.parts and seen.macs == result.macs[0]
    assert {u.name: u.width for u in seen.units} == result.full_widths
    assert "looked at in it: backbone" in str(seen)
    assert ldrf.inspect(model, batches[:1], parts=["backbone"]).parts == ("backbone",)
    with pytest.raises(LdrfError, match="Time is that of a whole model"):
        ldrf.inspect(model, batches[:1], parts=["backbone"], deployment=ldrf.Deployment())


def test_a_sweep_of_parts_gives_what_prune_gives():
    model, batches = detector(), image_lists(6)
    asked: dict[str, Any] = {"parts": ["backbone"], "config": PLAIN}
    [point] = ldrf.sweep(model, batches, speedup=[1.2], **asked)
    wanted = ldrf.prune(model, batches, speedup=1.2, **asked)
    assert point.result is not None and point.drop is None and point.result.macs == wanted.macs
    for mine, theirs in zip(point.result.model.parameters(), wanted.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    with pytest.raises(LdrfError, match="needs evaluate="):
        list(ldrf.sweep(model, batches, max_drop=[1.0], **asked))
    scores = iter((3.0, 1.0))
    [judged] = ldrf.sweep(model, batches, speedup=[1.2], evaluate=lambda whole: next(scores), **asked)
    assert judged.drop == 2.0


def test_fine_tuning_says_that_it_does_not_train_a_detector():
    model, batches = detector(), image_lists(6)
    result = ldrf.prune(model, batches, speedup=1.2, parts=["backbone"], config=PLAIN)
    with pytest.raises(LdrfError, match="train it in your own loop"):
        ldrf.finetune(result, model, batches)
