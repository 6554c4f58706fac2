"""Training resumes after a kill as if nothing had happened."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ldrf.data.cifar10 import LabelledImages
from ldrf.errors import LdrfError
from ldrf.zoo.training import TrainingSettings, evaluate, fine_tuning, save_weights, train, training_curve

RECIPE = TrainingSettings(epochs=3, batch=8, rate=0.05)


def data(count: int = 32, seed: int = 0) -> LabelledImages:
    """Images whose class is how bright they are."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    noise = torch.randint(0, 20, (count, 3, 8, 8), generator=generator)
    return LabelledImages((noise + labels.view(-1, 1, 1, 1) * 20).to(torch.uint8), labels)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )


class Kill(Exception):
    pass


def test_killed_and_resumed_equals_uninterrupted(tmp_path, monkeypatch):
    whole = train(network(), data(), data(seed=1), tmp_path / "whole", RECIPE)

    steps = 0
    real = torch.optim.SGD.step

    def step(self, *args, **kwargs):
        nonlocal steps
        steps += 1
        if steps == 7:  # in the middle of the second epoch
            raise Kill
        return real(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", step)
        with pytest.raises(Kill):
            train(network(), data(), data(seed=1), tmp_path / "killed", RECIPE)
    resumed = train(network(), data(), data(seed=1), tmp_path / "killed", RECIPE)

    assert len((tmp_path / "killed" / "log.txt").read_text().splitlines()) == 3
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_fine_tuning_takes_the_iterations_asked_for_and_resumes(tmp_path, monkeypatch):
    steps, rates = 0, []
    real = torch.optim.SGD.step

    def step(self, *args, **kwargs):
        nonlocal steps
        steps += 1
        rates.append(self.param_groups[0]["lr"])
        if steps == kill:
            raise Kill
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    settings, kill = TrainingSettings(batch=5, rate=0.01, warmup=0.0, iterations=20), None
    whole = train(network(), data(), data(seed=1), tmp_path / "whole", settings)
    assert steps == 20 and rates == pytest.approx([0.01 * (20 - done) / 20 for done in range(20)])
    curve = training_curve(tmp_path / "whole")
    assert [done for done, _, _ in curve] == [2, 5, 7, 10, 12, 15, 17, 20]
    assert curve[-1][2] == evaluate(whole, data(seed=1))

    steps, kill = 0, 9
    with pytest.raises(Kill):
        train(network(), data(), data(seed=1), tmp_path / "killed", settings)
    steps, kill = 0, None
    resumed = train(network(), data(), data(seed=1), tmp_path / "killed", settings)
    assert steps == 13 and training_curve(tmp_path / "killed") == curve
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_the_papers_fine_tuning_is_its_training_at_a_smaller_rate():
    settings, training = fine_tuning(10_000), TrainingSettings()
    assert (settings.rate, settings.batch, settings.momentum) == (0.01, 100, 0.9)
    assert (settings.iterations, settings.warmup) == (10_000, 0.0)
    assert (settings.decay, settings.smoothing) == (training.decay, training.smoothing)


def test_a_checkpoint_from_before_there_were_iterations_resumes(tmp_path):
    train(network(), data(), data(), tmp_path, TrainingSettings(epochs=1, batch=8))
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    del state["curve"], state["recipe"]["iterations"]
    torch.save(state, tmp_path / "last.pt")
    train(network(), data(), data(), tmp_path, TrainingSettings(epochs=1, batch=8))
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 1


def test_training_learns(tmp_path):
    model = train(network(), data(200), data(100, seed=1), tmp_path, TrainingSettings(epochs=8, batch=10, rate=0.1))
    assert evaluate(model, data(100, seed=1)) > 30
    assert not model.training


def test_other_settings_do_not_resume(tmp_path):
    train(network(), data(), data(), tmp_path, TrainingSettings(epochs=1, batch=8))
    with pytest.raises(LdrfError, match="use the same settings to resume, or another folder"):
        train(network(), data(), data(), tmp_path, TrainingSettings(epochs=2, batch=8))


def test_another_network_does_not_resume(tmp_path):
    train(network(), data(), data(), tmp_path, TrainingSettings(epochs=1, batch=8))
    with pytest.raises(LdrfError, match="belongs to another network"):
        train(
            nn.Sequential(nn.Flatten(), nn.Linear(192, 10)),
            data(),
            data(),
            tmp_path,
            TrainingSettings(epochs=1, batch=8),
        )


def test_a_damaged_checkpoint_is_refused(tmp_path):
    (tmp_path / "last.pt").write_bytes(b"half a file")
    with pytest.raises(LdrfError, match="not a readable training checkpoint"):
        train(network(), data(), data(), tmp_path, RECIPE)


@pytest.mark.parametrize(
    "change",
    [
        *({"curve": value} for value in (3, [3], [[1, 2]], [["a", 1.0, 1.0]], None)),
        *({"recipe": value} for value in (3, [], {"epochs": 7})),
        *({"model": value} for value in ({}, 3, {"0.weight": torch.zeros(1)}, {"0.weight": "x"})),
        *({"optimiser": value} for value in ({}, 3, {"state": {}, "param_groups": 3})),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(tmp_path, change):
    settings = TrainingSettings(epochs=1, batch=8)
    train(network(), data(8), data(8), tmp_path, settings)
    torch.save({**torch.load(tmp_path / "last.pt", weights_only=True), **change}, tmp_path / "last.pt")
    with pytest.raises(LdrfError, match="not a readable training checkpoint|another network|was trained with"):
        train(network(), data(8), data(8), tmp_path, settings)


def test_a_flipped_bit_in_a_checkpoint_is_noticed(tmp_path):
    train(network(), data(8), data(8), tmp_path, TrainingSettings(epochs=1, batch=8))
    content = bytearray((tmp_path / "last.pt").read_bytes())
    weight = torch.load(tmp_path / "last.pt", weights_only=True)["model"]["5.weight"].numpy().tobytes()
    content[content.index(weight) + 5] ^= 1
    (tmp_path / "last.pt").write_bytes(content)
    with pytest.raises(LdrfError, match="not a readable training checkpoint"):
        training_curve(tmp_path)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": -1}, {"rate": 0.0}, {"iterations": 0}])
def test_a_recipe_must_be_positive(wrong):
    with pytest.raises(LdrfError, match="must be positive"):
        TrainingSettings(**wrong)


def test_evaluate_restores_the_mode():
    model = network().train()
    evaluate(model, data())
    assert model.training


def test_weights_are_kept_in_half_precision_and_vectors_in_full(tmp_path):
    model = network().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    save_weights(model.state_dict(), tmp_path / "model.safetensors")
    found = load_file(tmp_path / "model.safetensors")
    assert found["0.weight"].dtype == torch.float16
    assert found["1.running_var"].dtype == torch.float32
    assert torch.equal(found["0.weight"], model.state_dict()["0.weight"].half())
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
