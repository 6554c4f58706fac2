"""``max_drop``: the fastest network that keeps the budget, judged by a score or by agreement with the dense network."""

import pytest
import torch
from networks import Chain, Residual, make
from torch import nn

import ldrf
from ldrf.budget import agreement, read_budget
from ldrf.errors import LdrfError

CONFIG = ldrf.PruneConfig(solver="closed-form", energy=0.05, multiple=1)


def kept_macs(model: nn.Module) -> float:
    """A score that falls as the network shrinks: a point per hundredth of the weights that go."""
    return 100 * sum(p.numel() for p in model.parameters()) / sum(p.numel() for p in make(Chain).parameters())


@pytest.mark.slow
def test_it_finds_the_largest_ratio_within_the_budget(prune_known):
    events = []
    result = prune_known(
        Chain, max_drop=30.0, evaluate=kept_macs, config=CONFIG, on_event=lambda e, d: events.append((e, d))
    )
    kept = [trial.ratio for trial in result.tried if trial.drop is not None and trial.drop <= 30]
    lost = [trial.ratio for trial in result.tried if trial.drop is None or trial.drop > 30]
    assert max(kept) == result.target["speedup"] < min(lost) and 2 <= len(result.tried) <= 6
    assert 100 - kept_macs(result.model) <= 30 and result.target["max_drop"] == 30
    assert [d["ratio"] for e, d in events if e == "tried"] == [trial.ratio for trial in result.tried]


@pytest.mark.slow
def test_what_was_learned_first_is_not_learned_again(prune_known, monkeypatch):
    calls = []
    import ldrf.pipeline as pipeline

    for name in ("survey", "output_curves", "unit_metrics"):
        real = getattr(pipeline, name)
        monkeypatch.setattr(pipeline, name, lambda *a, real=real, name=name: calls.append(name) or real(*a))
    result = prune_known(Chain, max_drop=40.0, evaluate=kept_macs, config=CONFIG)
    assert len(result.tried) > 1 and sorted(calls) == ["output_curves", "survey", "unit_metrics"]


@pytest.mark.slow
def test_the_result_is_that_of_a_prune_to_the_ratio(prune_known):
    found = prune_known(Chain, max_drop=30.0, evaluate=kept_macs, config=CONFIG)
    again = prune_known(Chain, speedup=found.target["speedup"], config=CONFIG)
    assert found.widths == again.widths
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor)


def test_without_labels_agreement_on_held_out_images_counts(network):
    net = network(Residual)
    assert agreement(net, net.model) == 100
    other = make(Residual, seed=3)
    held = torch.cat([net.calibration.chunks[i].args[0] for i in sorted(net.calibration.held_out)])
    with torch.no_grad():
        wanted = 100 * float((other(held).argmax(1) == net.model(held).argmax(1)).double().mean())
    assert agreement(net, other) == pytest.approx(wanted)


@pytest.mark.slow
def test_few_held_out_images_are_warned_of(prune_known):
    with pytest.warns(ldrf.LdrfWarning, match="held-out images tell .* points apart"):
        prune_known(Chain, max_drop=5.0, config=CONFIG)


def test_no_network_within_the_budget_is_told(prune_known):
    with pytest.raises(LdrfError, match="No slim network loses at most 0 points: the mildest .* loses"):
        prune_known(Chain, max_drop=0.0, evaluate=kept_macs, config=CONFIG)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_drop": -1}, "'max_drop' must be a number of points"),
        ({"max_drop": True}, "'max_drop' must be"),
        ({"max_drop": 1.0, "evaluate": 3}, "'evaluate' must be a function of the model. Got int"),
        ({"max_drop": 1.0, "speedup": 2.0}, "With max_drop= the ratio is what is looked for. Got speedup= beside it"),
        ({"speedup": 2.0, "evaluate": kept_macs}, "goes with max_drop="),
        ({"max_drop": 1.0, "resume": True}, "cannot be resumed: start it again"),
        ({"max_drop": 1.0, "evaluate": lambda _: float("nan")}, "must give a finite number of points. Got nan"),
    ],
)
def test_wrong_budgets_are_one_sentence(given, words, prune_known):
    with pytest.raises(LdrfError, match=words):
        prune_known(Chain, **given, config=CONFIG)


def test_the_axis_is_time_where_a_deployment_is_given():
    budget = read_budget(1, None, ldrf.Deployment("torch"))
    assert budget is not None and budget.first.objective == "latency"
    none = read_budget(1, None, None)
    assert none is not None and none.first.objective == "speedup"


def test_a_folder_that_cannot_be_written_is_told_before_the_work(prune_known, tmp_path, monkeypatch):
    (tmp_path / "cat.png").write_text("cat")
    monkeypatch.setattr("ldrf.pipeline.read_whole_or_parts", None)
    with pytest.raises(LdrfError, match="Cannot save to"):
        prune_known(Chain, max_drop=1.0, config=CONFIG, out=tmp_path)
