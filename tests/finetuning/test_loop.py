"""Fine-tuning gets closer to the dense network, never ends further from it, and resumes after a kill."""

import copy
import json
import math
import time
from dataclasses import replace

import pytest
import torch
from fixed_batches import Fixed, batches
from networks import Branches, Chain, Residual, images, make
from torch import Tensor, nn

import ldrf
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.finetuning import loop
from ldrf.finetuning.state import TuningRun
from ldrf.runtime.device import CPU, has_bfloat16

CONFIG = ldrf.FinetuneConfig(epochs=3, batch=16, rate=3e-2, augment=False, ema=0.5, held_out=0.25, norms="frozen")


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def distance(one: nn.Module, other: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        return float((one(x) - other(x)).square().mean())


@pytest.fixture(scope="module")
def dense() -> nn.Module:
    return make(Residual)


@pytest.fixture(scope="module")
def cut(pruned, prune_known):
    """Half of the neurons gone and nothing repaired: there is much to win back."""
    config = ldrf.PruneConfig(solver="none", selection="top-k")
    return prune_known(Residual, widths=pruned(Residual).widths, config=config)


@pytest.fixture(scope="module")
def tuned(cut, dense):
    """A result of the plain settings, without labels."""
    return ldrf.finetune(cut, dense, [images(96)], config=CONFIG)


@pytest.mark.slow
def test_without_labels_it_gets_closer_to_the_dense_network(cut, dense, tuned):
    slim, fresh = cut.model, images(200, seed=5)
    assert tuned.measure == "agreement" and tuned.ended >= tuned.began
    assert tuned.best_epoch > 0 and distance(tuned.model, dense, fresh) < 0.7 * distance(slim, dense, fresh)
    assert tuned.images == (72, 24) and len(tuned.epochs) == 3
    assert type(tuned.model) is Residual and not tuned.model.training


def test_bfloat16_rounds_the_passes_and_leads_as_far_and_auto_takes_it_where_it_is_fast(cut, dense, tuned):
    rounded, exact = (
        ldrf.finetune(cut, dense, [images(96)], config=replace(CONFIG, precision=kind))
        for kind in ("bfloat16", "float32")
    )
    fresh = images(200, seed=5)
    assert {p.dtype for p in rounded.model.parameters()} == {torch.float32}
    assert not same(rounded.model, exact.model)
    assert distance(rounded.model, dense, fresh) < 1.2 * distance(exact.model, dense, fresh)
    assert same(tuned.model, rounded.model if has_bfloat16(CPU) else exact.model), 'what "auto" is here'


def test_neither_model_nor_the_random_state_is_touched(pruned, dense):
    slim = pruned(Residual).model
    before = [copy.deepcopy(m.state_dict()) for m in (slim, dense)]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ldrf.finetune(slim, dense, [images(32)], config=replace(CONFIG, epochs=1, augment=True))
    assert torch.equal(torch.rand(3), expected)
    for state, model in zip(before, (slim, dense), strict=True):
        assert all(torch.equal(state[n], t) for n, t in model.state_dict().items())


@pytest.mark.filterwarnings("ignore::ldrf.errors.LdrfWarning")
@pytest.mark.parametrize("rate", [10.0, 1e-9])
def test_it_never_ends_further_from_the_dense_outputs_than_it_began(pruned, dense, rate):
    slim, judging = pruned(Residual).model, images(24, seed=3)
    config = replace(CONFIG, rate=rate, ema=0.0)
    tuned = ldrf.finetune(slim, dense, [images(48)], held_out=[judging], config=config)
    assert distance(tuned.model, dense, judging) <= distance(slim, dense, judging)
    assert tuned.best_epoch > 0 or same(tuned.model, slim)
    if rate == 10.0:
        assert tuned.best_epoch == 0 and "no epoch was better" in str(tuned)


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_best(pruned, dense):
    x = images(48)
    slim = pruned(Residual).model
    broken = torch.cat([x, torch.full_like(x[:16], math.nan)])
    with pytest.warns(LdrfWarning, match="not a number in epoch 1: a smaller rate may help"):
        tuned = ldrf.finetune(slim, dense, [broken], config=CONFIG)
    assert len(tuned.epochs) == 1 and same(tuned.model, slim)


class Kill(Exception):
    pass


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted(pruned, dense, tmp_path):
    slim, x, config = pruned(Residual).model, images(64), replace(CONFIG, augment=True)
    whole = ldrf.finetune(slim, dense, [x], config=config)

    def die(event, data):
        if event == "epoch" and data["epoch"] == 2:
            raise Kill

    state = tmp_path / "new" / "state.pt"
    with pytest.raises(Kill):
        ldrf.finetune(slim, dense, [x], config=config, resume=state, on_event=die)
    heard = []
    resumed = ldrf.finetune(
        slim, dense, [x], config=config, resume=state, on_event=lambda event, data: heard.append((event, data))
    )
    assert [event for event, _ in heard] == ["epoch", "done"] and heard[0][1]["epoch"] == 3
    assert same(whole.model, resumed.model) and [e.score for e in whole.epochs] == [e.score for e in resumed.epochs]
    assert (resumed.began, resumed.images) == (whole.began, whole.images)
    assert [p.name for p in state.parent.iterdir()] == ["state.pt"]

    with pytest.raises(LdrfError, match=r"written with other settings \(rate\)"):
        ldrf.finetune(slim, dense, [x], config=replace(config, rate=1e-4), resume=state)
    with pytest.raises(LdrfError, match="another slim model's run"):
        ldrf.finetune(make(Residual, 3), dense, [x], config=config, resume=state)
    state.write_bytes(b"xx")
    with pytest.raises(LdrfError, match="not the state of a fine-tuning run"):
        ldrf.finetune(slim, dense, [x], config=config, resume=state)


def test_it_stops_by_the_minutes_with_the_rate_near_zero(cut, dense, monkeypatch):
    rates, real = [], TuningRun.set_rate
    monkeypatch.setattr(TuningRun, "set_rate", lambda run, rate: rates.append(rate) or real(run, rate))
    began = time.perf_counter()
    result = ldrf.finetune(cut, dense, [images(96)], config=replace(CONFIG, epochs=10_000, minutes=0.02))
    assert time.perf_counter() - began < 20 and 0 < len(result.epochs) < 10_000
    assert min(rates) < 0.2 * max(rates)


def test_it_stops_when_there_is_no_gain(pruned, dense):
    config = replace(CONFIG, epochs=20, rate=1e-9, patience=2)
    tuned = ldrf.finetune(pruned(Residual), dense, [images(48)], config=config)
    assert len(tuned.epochs) == tuned.best_epoch + 2


def test_labels_alone_need_no_dense_network():
    x = images(160)
    batches = [(x[i : i + 32], (x[i : i + 32].mean((1, 2, 3)) > 0).long()) for i in range(0, 160, 32)]
    config = replace(CONFIG, labels=1.0, logits=0.0, embeddings=0.0, epochs=6, rate=3e-2)
    tuned = ldrf.finetune(make(Chain, 2), None, batches, config=config)
    assert tuned.measure == "accuracy" and tuned.ended > max(tuned.began, 0.7)
    assert tuned.as_dict()["macs"]["dense"] == tuned.as_dict()["macs"]["slim"]


def test_labels_and_the_dense_network_teach_together(cut, dense):
    x = images(96)
    labels = dense(x).argmax(1)
    config = replace(CONFIG, labels=0.5, epochs=4)
    tuned = ldrf.finetune(cut, dense, [(x, labels)], config=config)
    alone = ldrf.finetune(cut, dense, [(x, labels)], config=replace(config, logits=0.0, embeddings=0.0))
    assert tuned.measure == alone.measure == "accuracy" and tuned.ended >= tuned.began
    assert not same(tuned.model, alone.model)
    assert distance(tuned.model, dense, images(64, seed=9)) < distance(cut.model, dense, images(64, seed=9))


def test_the_papers_recipe_is_plain_steps_down_a_line(cut, dense, monkeypatch):
    paper = ldrf.FinetuneConfig.paper()
    assert (paper.iterations, paper.batch, paper.rate, paper.schedule) == (10_000, 100, 0.01, "linear")
    assert (paper.labels, paper.logits, paper.embeddings, paper.optimiser) == (1.0, 0.0, 0.0, "sgd")
    rates: list[float] = []
    set_rate = TuningRun.set_rate
    monkeypatch.setattr(TuningRun, "set_rate", lambda run, rate: rates.append(rate) or set_rate(run, rate))
    x = images(96)
    config = replace(paper, iterations=8, batch=16, held_out=0.25)
    tuned = ldrf.finetune(cut, None, [(x, dense(x).argmax(1))], config=config)
    assert rates == pytest.approx([0.01 * (1 - step / 8) for step in range(8)])
    assert len(tuned.epochs) == 2, "five steps are a pass, and three are left"
    assert tuned.measure == "accuracy"


def test_iterations_need_batches_that_can_be_counted(cut, dense):
    class Endless:
        def __iter__(self):
            return iter([images(16)])

    with pytest.raises(LdrfError, match="With 'iterations' the batches must have a length"):
        ldrf.finetune(cut, dense, Endless(), held_out=[images(16)], config=replace(CONFIG, iterations=3))


def test_images_are_blended_where_the_dense_model_teaches_and_their_labels_with_them(cut, dense, monkeypatch):
    seen: list[Tensor | None] = []
    asked = loop.cross_entropy
    monkeypatch.setattr(loop, "cross_entropy", lambda *given: seen.append(given[2]) or asked(*given))
    labelled, config = [(images(64), torch.zeros(64).long())], replace(CONFIG, epochs=1, augment=True, labels=1.0)
    ldrf.finetune(cut, dense, labelled, config=config)
    assert all(shares is not None and 0 < float(shares.max()) <= 0.5 for shares in seen)
    taught = len(seen)
    ldrf.finetune(cut, None, labelled, config=replace(config, logits=0.0, embeddings=0.0))
    assert len(seen) == 2 * taught > 0 and all(shares is None for shares in seen[taught:])


def test_labels_are_unread_unless_wanted(cut, dense, tuned):
    x = images(96)
    mislabelled = [(x, torch.full((96,), -7))]
    assert same(ldrf.finetune(cut, dense, mislabelled, config=CONFIG).model, tuned.model)
    with pytest.raises(LdrfError, match="every batch must be"):
        ldrf.finetune(cut, dense, [x], config=replace(CONFIG, labels=1.0))
    with pytest.raises(LdrfError, match="Labels must lie from 0 to 4, as the model has 5 classes. Got -7 to -7"):
        ldrf.finetune(cut, dense, mislabelled, config=replace(CONFIG, labels=1.0))


@pytest.mark.slow
def test_outputs_that_are_not_scores_are_matched_too(pruned):
    dense = make(Branches)
    config = replace(CONFIG, epochs=2)

    class Maps(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            found = self.inner(x)
            return found["near"], found["wide"]

    tuned = ldrf.finetune(Maps(pruned(Branches).model), Maps(dense), [images(64)], config=config)
    assert tuned.measure == "fidelity" and tuned.began < tuned.ended <= 1


def test_a_loader_of_ones_own_is_gone_through_once_an_epoch(pruned, dense):
    class Loader:
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

        def __iter__(self):
            yield from images(32, seed=self.epochs[-1]).split(16)
            yield images(1)  # a row alone is left out

    loader = Loader()
    config = replace(CONFIG, norms="batch")
    tuned = ldrf.finetune(pruned(Residual), dense, loader, held_out=[images(20, seed=9)], config=config)
    assert loader.epochs == [1, 2, 3] and tuned.images == (32, 20)
    with pytest.raises(LdrfError, match="pass a DataLoader, not an iterator"):
        ldrf.finetune(pruned(Residual), dense, iter(loader), held_out=[images(4)], config=CONFIG)


@pytest.mark.parametrize("norms", ["batch", "frozen"])
def test_norms_keep_their_statistics_or_follow_the_batches(pruned, dense, tmp_path, norms):
    slim, state = pruned(Residual).model, tmp_path / "state.pt"
    ldrf.finetune(slim, dense, [images(32)], config=replace(CONFIG, norms=norms, epochs=1), resume=state)
    found = torch.load(state, weights_only=True)["student"]
    assert torch.equal(found["bn.running_var"], slim.bn.running_var) == (norms == "frozen")
    assert not torch.equal(found["bn.weight"], slim.bn.weight)


def test_the_result_is_saved_loaded_and_told(cut, tuned, tmp_path):
    folder = ldrf.save(tuned, tmp_path / "tuned", source={"model": "residual"})
    assert same(ldrf.load(folder, make(Residual, 8)), tuned.model)
    record = json.loads((folder / "ldrf.json").read_text())
    assert record["widths"] == cut.widths and record["finetune"]["ended"] == tuned.ended
    assert record["metrics"]["macs"]["slim"] == cut.macs[1]
    text = str(tuned)
    assert "epoch" in text and f"{tuned.began:.2%} -> {tuned.ended:.2%} on 24 held-out images" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 0}, "'epochs' must lie from 1"),
        ({"schedule": "step"}, "must be one of cosine, linear. Got 'step'"),
        ({"norms": "none"}, "must be one of batch, frozen"),
        ({"logits": 0.0, "embeddings": 0.0}, "At least one of 'labels', 'logits' and 'embeddings'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, words):
    with pytest.raises(LdrfError, match=words):
        replace(CONFIG, **change)


def test_what_does_not_fit_is_one_sentence(pruned, dense):
    slim = pruned(Residual)
    with pytest.raises(LdrfError, match="needs the dense model"):
        ldrf.finetune(slim, None, [images(8)], config=CONFIG)
    with pytest.raises(LdrfError, match="outputs of the same shape"):
        ldrf.finetune(slim.model, nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), [images(8)], config=CONFIG)
    with pytest.raises(LdrfError, match=r"Residual cannot take a batch of shape \(2, 5\)"):
        ldrf.finetune(slim, dense, [torch.randn(8, 5)], config=CONFIG)
    with pytest.raises(LdrfError, match="at least one batch. Got none"):
        ldrf.finetune(slim, dense, [], config=CONFIG)
    with pytest.raises(LdrfError, match="At least 2 images"):
        ldrf.finetune(slim, dense, [images(1)], config=CONFIG)
    with pytest.raises(LdrfError, match="inputs of the same shapes"):
        ldrf.finetune(slim, dense, [images(4), images(4, shape=(3, 6, 6))], config=CONFIG)


def test_the_first_steps_are_small(cut, dense, monkeypatch):
    rates: list[float] = []
    monkeypatch.setattr(TuningRun, "set_rate", lambda self, rate: rates.append(rate))
    ldrf.finetune(cut, dense, [images(96)], config=replace(CONFIG, epochs=2))
    steps = len(rates) // 2
    assert steps == 5 and rates[0] == pytest.approx(CONFIG.rate / 5) and rates[4] > rates[3] > rates[2] > rates[1]
    assert rates[5] > rates[6] > rates[9]


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_rate_falls_from_the_top_to_almost_nothing(pruned, dense, schedule):
    config = replace(CONFIG, schedule=schedule, epochs=4, batch=12)
    rates = [e.rate for e in ldrf.finetune(pruned(Residual), dense, [images(24)], config=config).epochs]
    assert rates[0] == config.rate and rates == sorted(rates, reverse=True)
    assert rates[2] == pytest.approx(config.rate / 2)


def test_a_model_that_fixes_its_batch_is_trained_on_batches_as_they_are_given():
    model, given = make(Fixed), batches(8, 6)
    pruned = ldrf.prune(model, given, widths={"first": 9}, config=ldrf.PruneConfig(steps=0, joint_steps=0))
    config = ldrf.FinetuneConfig(epochs=1, batch=8)
    with pytest.raises(LdrfError, match="Fixed takes one batch size only, .*: pass held_out= as well"):
        ldrf.finetune(pruned, model, given, config=config)
    tuned = ldrf.finetune(pruned, model, given[:4], held_out=given[4:], config=config)
    assert tuned.example.rows == 8 and tuned.images == (32, 16)
