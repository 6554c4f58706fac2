"""One test for each kind of bad input: what was wrong, where, and that nothing is broken by it."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false

import warnings

import pytest
import torch
import torch.nn.functional as F
from networks import CalledTwice, Chain, Mlp, Residual, Tied, images, make, settled
from torch import nn

import ldrf

FAST = ldrf.PruneConfig(solver="closed-form", energy=0.2)


def prune(model, batches=None, **target):
    batches = [images(24)] if batches is None else batches
    return ldrf.prune(model, batches, config=FAST, **(target or {"widths": {"conv1": 6}}))


@pytest.mark.parametrize("batches", [[], iter(()), ()])
def test_no_batches(batches):
    with pytest.raises(ldrf.LdrfError, match="must hold at least one batch. Got none"):
        prune(make(Chain), batches)


def test_batches_that_are_no_iterable():
    with pytest.raises(ldrf.LdrfError, match="must be an iterable. Got float"):
        prune(make(Chain), 3.5)


@pytest.mark.parametrize("shape", [(4, 5, 8, 8), (4, 3), (4, 3, 8, 8, 2, 2)])
def test_a_batch_the_model_cannot_take(shape):
    with pytest.raises(ldrf.LdrfError, match="Chain cannot take a calibration batch of shape .*") as caught:
        prune(make(Chain), [torch.zeros(shape)])
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_images_that_are_not_numbers_name_the_layer(value):
    x = images(24)
    x[0, 0, 0, 0] = value
    with pytest.raises(ldrf.LdrfError, match="layer 'conv1' must be finite"):
        prune(make(Chain), [x])


def test_held_out_images_that_are_not_numbers_name_the_layer():
    x = images(24)
    x[-1, 0, 0, 0] = float("nan")
    with pytest.raises(ldrf.LdrfError, match="layer 'conv1' must be finite"):
        prune(make(Chain), [x])


def test_activations_that_overflow_name_the_layer():
    model = make(Chain)
    model.bn1.weight.data[:] = 1e38
    model.conv2.weight.data[:] = 1e4
    with pytest.raises(ldrf.LdrfError, match="layer 'conv[12]' must be finite"):
        prune(model)


def test_weights_that_are_not_numbers_name_the_layer():
    model = make(Chain)
    model.conv2.weight.data[3, 2, 1, 0] = float("nan")
    with pytest.raises(ldrf.LdrfError, match="weights of layer 'conv2' must be finite"):
        prune(model)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_fewer_rows_than_the_closed_form_needs_warn_and_go_on(rows):
    model = settled(nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 5)))
    with pytest.warns(ldrf.LdrfWarning, match="calibration"):
        result = prune(model, [images(rows)], widths={"1": 8})
    assert result.widths == {"1": 8}
    assert all(torch.isfinite(t).all() for t in result.model.state_dict().values())
    assert torch.isfinite(result.model(images(3))).all()


def test_enough_rows_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prune(make(Chain), [images(64)])


@pytest.mark.parametrize("speedup", [1, 1.0, 0.5, 0, -3, float("nan"), "2"])
def test_a_speedup_of_one_or_less(speedup):
    with pytest.raises(ldrf.LdrfError, match="The 'speedup' must be a number above 1"):
        prune(make(Chain), speedup=speedup)


@pytest.mark.parametrize("target", [{"speedup": 1000.0}, {"params": 1000.0}, {"speedup": float("inf")}])
def test_a_target_beyond_reach_names_the_largest(prune_known, target):
    with pytest.raises(ldrf.LdrfError, match=r"is out of reach: the largest .* is \d+\.\d\d") as caught:
        prune_known(Chain, config=FAST, **target)
    if "speedup" in target:
        largest = float(str(caught.value).split(" is ")[2].split(",")[0])
        assert prune_known(Chain, config=FAST, speedup=0.98 * largest).speedup >= 0.98 * largest


@pytest.mark.parametrize("what", ["widths", "keep"])
def test_an_unknown_layer_in_widths_and_keep(prune_known, what):
    with pytest.raises(ldrf.LdrfError, match=f"Unknown layer 'conv3' in {what}=.*conv2"):
        prune_known(Chain, config=FAST, **{what: {"conv3": 1}})


def test_an_unknown_layer_in_ignore():
    with pytest.raises(ldrf.LdrfError, match="Unknown layer 'features.3' in ignore="):
        prune(make(Chain), speedup=1.2, ignore=["conv1", "features.3"])


@pytest.mark.parametrize("width", [0, 13, 6.5])
def test_a_width_that_is_none(prune_known, width):
    with pytest.raises(ldrf.LdrfError, match="The width of 'conv1' must be a whole number from 1 to 12. Got"):
        prune_known(Chain, config=FAST, widths={"conv1": width})


@pytest.mark.parametrize("solver", ["closed-form", "joint"])
def test_dead_neurons_and_embeddings_without_variance(solver):
    model = make(Chain)
    model.bn1.weight.data[:5], model.bn1.bias.data[:5] = 0, -1  # never fire
    model.bn1.weight.data[5:7], model.bn1.bias.data[5:7] = 0, 1  # constant
    config = ldrf.PruneConfig(solver=solver, steps=5, joint_steps=10, energy=0.2)
    result = ldrf.prune(model, [images(32)], widths={"conv1": 7}, config=config)
    assert all(torch.isfinite(t).all() for t in result.model.state_dict().values())
    torch.testing.assert_close(result.model(images(4)), model(images(4)), rtol=2e-2, atol=2e-2)


def test_a_layer_in_which_nothing_fires():
    model = make(Chain)
    model.bn1.weight.data[:], model.bn1.bias.data[:] = 0, 0
    result = prune(model, widths={"conv1": 2, "conv2": 4})
    assert torch.isfinite(result.model(images(4))).all()


def test_images_without_any_content():
    result = prune(make(Chain), [torch.zeros(24, 3, 8, 8)])
    torch.testing.assert_close(
        result.model(torch.zeros(2, 3, 8, 8)), make(Chain)(torch.zeros(2, 3, 8, 8)), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), "'1': it is an output of the model"),
        (nn.Sequential(nn.ReLU(), nn.Flatten()), "it has no conv or linear layer"),
    ],
)
def test_a_model_without_prunable_layers(model, reason):
    with pytest.raises(ldrf.LdrfError, match=f"Sequential has no prunable layer \\({reason}"):
        prune(model, speedup=2.0)


def test_everything_ignored_leaves_nothing_to_prune():
    with pytest.raises(ldrf.LdrfError, match="Chain has no prunable layer .*ignored"):
        prune(make(Chain), speedup=1.2, ignore="*")


def test_a_model_that_cannot_be_traced_says_which_line():
    class Undecided(Chain):
        def forward(self, x):
            if float(x.mean()) > 0:
                x = -x
            return super().forward(x)

    with pytest.raises(
        ldrf.LdrfError, match=r"torch.export cannot trace Undecided at .*test_bad_input.py:\d+ \(if float"
    ):
        prune(settled(Undecided()))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "held"), [(Tied, ("one", "two")), (CalledTwice, ("inner",))])
def test_shared_weights_keep_their_width_and_say_so(kind, held):
    model = make(kind)
    result = prune(model, widths={"free": 7})
    slim = result.model
    reasons = {s.name: s.reason for s in result.skipped}
    assert "more than one call" in reasons[held[0]]
    for name in held:
        assert torch.equal(slim.get_submodule(name).weight, model.get_submodule(name).weight)
    if kind is Tied:
        assert slim.one.weight is slim.two.weight
    with pytest.raises(ldrf.LdrfError, match=f"Layer '{held[0]}' in widths= cannot be cut: its .*more than one call"):
        prune(make(kind), widths={held[0]: 4})


@pytest.mark.slow
def test_frozen_parameters_are_pruned_and_stay_frozen():
    model = make(Chain).requires_grad_(False)
    slim = prune(model).model
    assert slim.conv1.out_channels == 6
    assert not any(p.requires_grad for p in slim.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights(dtype):
    slim = prune(make(Residual).to(dtype), [images(24).to(dtype)], widths={"block1.conv1": 4}).model
    assert {p.dtype for p in slim.parameters()} == {dtype}


def test_channels_last_weights():
    model = make(Residual).to(memory_format=torch.channels_last)
    slim = prune(model, widths={"block1.conv1": 4}).model
    assert slim.block1.conv1.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("training", [True, False])
def test_training_mode_is_restored_even_after_an_error(training):
    model = make(Chain).train(training)
    model.bn2.eval()
    modes = [m.training for m in model.modules()]
    assert [m.training for m in prune(model).model.modules()] == modes
    with pytest.raises(ldrf.LdrfError):
        prune(model, speedup=1000.0)
    assert [m.training for m in model.modules()] == modes


def test_an_interrupt_leaves_no_activations_on_disk(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def interrupt(walk, *_):
        seen.append(walk.store)
        assert walk.store.spilled > 0
        raise KeyboardInterrupt

    monkeypatch.setattr("ldrf.methods.ldrf.reconstruct", interrupt)
    config = ldrf.PruneConfig(solver="closed-form", memory=100)
    with pytest.raises(KeyboardInterrupt):
        ldrf.prune(make(Chain), [images(24)], widths={"conv1": 6}, config=config)
    assert seen[0].spilled == 0 and list(tmp_path.glob("ldrf-*")) == []


def test_an_interrupted_save_leaves_no_half_written_folder(pruned, monkeypatch, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ldrf.saving.checkpoint.write_through", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ldrf.save(pruned(Chain), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [Mlp, None])
def test_layers_without_a_bias_can_be_reconstructed(kind):
    """A solved constant has no place in such a layer, so none may be solved for."""
    parts = (nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 6, 3, bias=False), nn.Flatten(), nn.Linear(96, 4))
    model = make(kind) if kind else settled(nn.Sequential(*parts))
    name = "first" if kind else "0"
    result = prune(model, widths={name: 6})
    assert list(result.model.state_dict()) == list(model.state_dict())
    gap = F.mse_loss(result.model(images(32)), model(images(32))) / model(images(32)).var()
    assert float(gap.detach()) < 1


def test_a_setting_among_the_arguments_is_pointed_to_its_place():
    with pytest.raises(
        ldrf.LdrfError, match=r"no argument 'steps': a setting goes into config=ldrf.PruneConfig\(steps=2\)"
    ):
        ldrf.prune(make(Chain), [images(8)], speedup=1.2, steps=2)


def test_a_dict_batch_of_other_names_tells_both_lists():
    with pytest.raises(ldrf.LdrfError, match=r"must be those the model takes \(x\)\. Got pixels, text\."):
        prune(make(Chain), [{"pixels": images(8), "text": images(8)}])
