"""Scores that rounding alone orders are taken in the same order; others are not."""

import torch

from ldrf.tracing.choices import Choices

SCORES = torch.tensor([[3.0, 2.0, 2.0 + 1e-6, 1.0, 1.0 + 1e-6]])


def test_nearly_equal_scores_are_taken_in_the_noted_order():
    choices, rounded = Choices(), SCORES.flip(1).round(decimals=4).flip(1)
    with choices.noted():
        first, last = SCORES.topk(4).indices, SCORES.sort(dim=1).indices
    other = rounded + torch.tensor([[0.0, 2e-6, 0.0, 2e-6, 0.0]])
    assert not torch.equal(other.topk(4).indices, first)
    with choices.followed():
        values, places = other.topk(4)
        assert torch.equal(places, first) and torch.equal(values, other.gather(1, first))
        assert torch.equal(other.sort(dim=1).indices, last)
        assert torch.equal(other.sort(dim=1).indices, other.argsort(1))  # nothing is left to follow
    assert len(choices.places) == 2


def test_scores_that_differ_keep_their_own_order():
    choices = Choices()
    with choices.noted():
        SCORES.topk(2, 1)
        SCORES[0].topk(1)  # of another shape, so it is passed over
        SCORES.topk(2, -1)
    other = SCORES.flip(1)
    with choices.followed():
        assert other.topk(2).indices.tolist() == [[4, 2]]
        assert other.topk(2, dim=1).indices.tolist() == [[4, 2]]


def test_whole_numbers_are_left_alone():
    choices = Choices()
    with choices.noted():
        torch.tensor([1, 1, 0]).sort(stable=True)
    with choices.followed():
        assert torch.tensor([0, 1, 1]).sort(stable=True).indices.tolist() == [0, 1, 2]
