"""The state of a fine-tuning run: its steps, its best weights, and the file it goes on from."""

from dataclasses import replace

import pytest
import torch
from networks import Residual, images, make
from torch import nn

import ldrf
from ldrf.algebra.muon import SHARE
from ldrf.errors import LdrfError
from ldrf.finetuning.state import TuningRun, keep, resumed
from ldrf.result import Epoch

CONFIG = ldrf.FinetuneConfig(epochs=3, batch=16, rate=3e-2, augment=False, ema=0.5, held_out=0.25, norms="frozen")


@pytest.fixture(scope="module")
def dense() -> nn.Module:
    return make(Residual)


def weight(model: nn.Module) -> torch.Tensor:
    return model.get_parameter("weight")


def trained(start: nn.Module) -> TuningRun:
    """A run with a step behind it."""
    run = TuningRun.of(start, 0.1)
    run.begin(0.5, 1.0, 8)
    run.set_rate(0.1)
    run.student(torch.ones(2, 4)).square().sum().backward()
    run.optimiser.step()
    run.follow(0.25)
    run.add(Epoch(1, 0.3, 0.75, 0.5, 0.1, 0.01), by_score=True)
    return run


def test_a_kept_run_goes_on_as_it_was(tmp_path):
    start = nn.Linear(4, 4)
    run, fresh = trained(start), TuningRun.of(start, 0.1)
    keep(run, tmp_path / "in" / "state.pt", CONFIG, start)
    assert resumed(fresh, tmp_path / "in" / "state.pt", CONFIG, start)
    assert fresh.epochs == run.epochs and (fresh.began, fresh.best_score, fresh.best_epoch) == (0.5, 0.75, 1)
    for part in ("student", "average"):
        mine, other = getattr(run, part).state_dict(), getattr(fresh, part).state_dict()
        assert all(torch.equal(mine[name], other[name]) for name in mine)
    for mine, other in zip(run.student.parameters(), fresh.student.parameters(), strict=True):
        other.grad = mine.grad
    for one in (run, fresh):
        one.optimiser.step()  # with the same memory of earlier steps
    assert torch.equal(weight(run.student), weight(fresh.student))


def test_without_a_file_a_run_begins(tmp_path):
    start = nn.Linear(4, 4)
    assert not resumed(TuningRun.of(start, 0.1), tmp_path / "none.pt", CONFIG, start)
    assert not resumed(TuningRun.of(start, 0.1), None, CONFIG, start)


def test_the_mean_follows_the_weights():
    start = nn.Linear(4, 4)
    run = trained(start)
    wanted = 0.25 * start.weight + 0.75 * weight(run.student)
    assert torch.allclose(weight(run.average), wanted) and not torch.equal(start.weight, weight(run.student))
    assert torch.equal(run.best["weight"], weight(run.average))


def test_counters_are_taken_over_as_they_are():
    run = TuningRun.of(nn.BatchNorm2d(2), 0.1)
    run.student.get_buffer("num_batches_tracked").add_(3)
    run.follow(0.9)
    assert int(run.average.get_buffer("num_batches_tracked")) == 3


@pytest.mark.parametrize(("by_score", "best"), [(False, 1), (True, 2)])
def test_the_best_is_the_nearest_whatever_it_scores_or_with_labels_the_highest(by_score, best):
    run = TuningRun.of(nn.Linear(2, 2), 1e-3)
    run.begin(0.9, 0.5, 100)
    for number, (score, distance) in enumerate([(0.89, 0.1), (0.95, 0.45), (0.9, 0.4), (0.94, 0.42)], 1):
        run.add(Epoch(number, 0.0, score, distance, 1e-3, 0.0), by_score)
    assert run.best_epoch == best


@pytest.mark.slow
def test_a_state_of_another_form_is_refused(pruned, dense, tmp_path):
    slim, x, config, path = pruned(Residual).model, images(32), replace(CONFIG, epochs=1), tmp_path / "state.pt"
    ldrf.finetune(slim, dense, [x], config=config, resume=path)
    whole = torch.load(path, weights_only=True)
    odd = [None, 3, [], {}, "x", {"a": torch.zeros(2)}, {k: t[:1] if t.ndim else t for k, t in whole["best"].items()}]
    for key, value in [(key, value) for key in whole for value in odd]:
        torch.save({**whole, key: value}, path)
        if type(value) is not type(whole[key]) or isinstance(value, dict):
            with pytest.raises(LdrfError, match="fine-tuning run|settings|another slim model") as caught:
                ldrf.finetune(slim, dense, [x], config=config, resume=path)
            assert "\n" not in str(caught.value)
    torch.save([1, 2], path)
    with pytest.raises(LdrfError, match="not the state of a fine-tuning run"):
        ldrf.finetune(slim, dense, [x], config=config, resume=path)


def test_every_tensor_moves_by_a_share_of_its_size():
    layer = nn.Linear(4, 4)
    layer.weight.data.fill_(3.0)
    layer.bias.data.zero_()
    run = TuningRun.of(layer, 0.1)
    run.set_rate(0.1)
    run.student(torch.ones(2, 4)).sum().backward()
    run.optimiser.step()
    moved = run.student.state_dict()
    assert float((moved["weight"] - 3).square().mean().sqrt()) == pytest.approx(SHARE * 0.3, rel=1e-4)
    assert torch.allclose(moved["bias"], torch.tensor(-0.001))
