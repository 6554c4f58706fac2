"""Numbers that go wrong: each is handled, or refused in one sentence that names the layer or the images."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false

import math
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Chain, Mlp, images, make, settled
from torch import Tensor, nn

import ldrf
from ldrf.algebra.moments import RowSums, damped_factor, least_squares

FAST = ldrf.PruneConfig(solver="closed-form", energy=0.2)
JOINT = ldrf.PruneConfig(steps=8, joint_steps=16, energy=0.2)
DROPPED = "gives other outputs for the same inputs each time"


def prune(model, batches=None, config=FAST, **target):
    return ldrf.prune(
        model, [images(32)] if batches is None else batches, config=config, **(target or {"widths": {"conv1": 6}})
    )


def refused(words, *args, **named):
    with pytest.raises(ldrf.LdrfError, match=words) as caught:
        prune(*args, **named)
    assert "\n" not in str(caught.value)


def sound(result, dense, x=None, most=0.1) -> None:
    """All numbers finite, and the outputs close to the dense ones."""
    x = images(8, seed=3) if x is None else x
    assert all(torch.isfinite(t).all() for t in result.model.state_dict().values())
    with torch.no_grad():
        wanted = dense(x)
        gap = float((result.model(x) - wanted).double().square().sum() / wanted.double().square().sum())
    assert gap < most, gap


# Not a number


@pytest.mark.parametrize(
    ("tensor", "layer", "odd"),
    [
        ("conv1.weight", "conv1", math.nan),
        ("conv2.weight", "conv2", math.inf),
        ("bn1.weight", "conv1", math.inf),
        ("bn2.running_var", "conv2", math.nan),
        ("bn2.running_var", "conv2", -1.0),
        ("fc.bias", "fc", -math.inf),
    ],
)
def test_weights_that_are_no_numbers_name_the_layer(tensor, layer, odd):
    model = make(Chain)
    model.state_dict()[tensor].view(-1)[0] = odd
    refused(f"weights of layer '{layer}' must be finite", model)


def test_activations_that_are_no_numbers_name_the_layer_in_analyze_too():
    x = images(16)
    x[3] = math.nan
    with pytest.raises(ldrf.LdrfError, match="activations of layer 'conv1' must be finite"):
        ldrf.analyze(make(Chain), [x])


@pytest.mark.slow
def test_a_number_that_only_the_code_breaks_is_named_where_it_arrives():
    class Log(Chain):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.relu(self.bn2(self.conv2(torch.log(F.relu(self.bn1(self.conv1(x))))))).mean((2, 3)))

    refused("activations of layer 'conv2' must be finite", settled(Log()))


# Too large, or too alike


@pytest.mark.parametrize("size", [1e16, 1e30])
def test_exploding_activations_name_the_layer(size, config=JOINT):
    refused(
        r"activations of layer 'conv1' must stay below 1e\+15.* Got [\d.]+e\+\d\d instead",
        make(Chain),
        [images(32) * size],
        config,
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-20, 1e8, 1e13])
def test_large_and_small_activations_are_pruned_as_others_are(size):
    model = settled(nn.Sequential(nn.Flatten(), nn.Linear(192, 24), nn.ReLU(), nn.Linear(24, 5)))
    model[1].bias.data[:], model[3].bias.data[:] = 0, 0
    result = prune(model, [images(256) * size], JOINT, widths={"1": 20})
    usual = prune(model, [images(256)], JOINT, widths={"1": 20})
    if size > 1:
        assert result.held_out.cut == pytest.approx(usual.held_out.cut, rel=0.3)
    assert result.held_out.reconstructed <= result.held_out.cut


@pytest.mark.parametrize(("damping", "config"), [(0.0, FAST), (0.0, JOINT), (1e-4, FAST)])
def test_neurons_that_say_the_same_are_no_trouble(damping, config):
    model = make(Chain)
    model.conv1.weight.data[6:] = model.conv1.weight.data[:6]
    for tensor in (model.bn1.weight.data, model.bn1.bias.data, model.bn1.running_mean, model.bn1.running_var):
        tensor[6:] = tensor[:6]
    sound(prune(model, config=replace(config, damping=damping)), model, most=1e-2)


@pytest.mark.parametrize("damping", [0.0, 1e-4])
def test_constant_and_dead_channels_are_no_trouble(damping):
    model = make(Chain)
    model.bn1.weight.data[:8] = 0
    model.bn1.bias.data[:4], model.bn1.bias.data[4:8] = -1, 1  # dead, and constant
    sound(prune(model, config=replace(FAST, damping=damping)), model, most=1e-2)


@settings(max_examples=40)
@given(
    st.integers(1, 8),
    st.integers(1, 30),
    st.integers(0, 8),
    st.sampled_from([0.0, 1e-8, 1e-4, 1.0]),
    st.integers(0, 99),
)
def test_least_squares_has_an_answer_for_any_rows(columns, rows, rank, damping, seed):
    """Singular or not, the solution is finite and fits no worse than where it starts (up to rounding)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, min(rank, columns), generator=generator) @ torch.randn(
        min(rank, columns), columns, generator=generator
    )
    target = torch.randn(rows, 3, generator=generator)
    sums = RowSums(columns, 3)
    sums.add(x, target)
    moments = sums.moments()
    start = torch.randn(columns + 1, 3, generator=generator).double()
    solved = least_squares(moments, start, damping)
    assert torch.isfinite(solved).all()
    assert moments.error(solved) <= moments.error(start) * (1 + 1e-3) + 1e-3


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_gram_matrix_that_is_no_number_ends(odd):
    with pytest.raises(ldrf.LdrfError, match="overflow"):
        damped_factor(torch.full((3, 3), odd, dtype=torch.float64), 1e-4)
    assert torch.isfinite(damped_factor(torch.zeros(3, 3, dtype=torch.float64), 0.0)).all()


# Images


@pytest.mark.parametrize("config", [FAST, JOINT])
def test_one_image_is_enough_to_go_on(config):
    model = make(Chain)
    result = prune(model, [images(1)], config)
    assert result.images == 1 and result.held_out.reconstructed <= result.held_out.cut
    assert torch.isfinite(result.model(images(4))).all()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (torch.zeros(4, 3, 10, 10), r"Got \[3, 8, 8\] and \[3, 10, 10\]: resize, crop or pad"),
        (torch.zeros(4, 4, 8, 8), r"Got \[3, 8, 8\] and \[4, 8, 8\]"),
        (torch.zeros(4, 192), r"Got \[3, 8, 8\] and \[192\]"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.long), "Got torch.float32 and torch.int64"),
        (torch.zeros(0, 3, 8, 8), r"non-zero number of rows. Got \[0\]"),
        (torch.tensor(3.0), r"non-zero number of rows. Got \[0\]"),
        ("images", "must be a tensor, a tuple or a dict. Got str"),
        (None, "must be a tensor, a tuple or a dict. Got NoneType"),
    ],
)
def test_a_later_batch_unlike_the_first_is_refused(other, words):
    refused(words, make(Chain), [images(32), other])


def test_batches_of_differing_length_and_precision_are_alike():
    model = make(Chain)
    batches = [images(20), images(7, seed=1).double(), images(5, seed=2).half()]
    assert prune(model, batches).images == 32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_whole_numbers_for_a_network_of_floats_are_refused(dtype):
    refused("Chain cannot take a calibration batch of shape", make(Chain), [(10 * images(8)).to(dtype)])


def tokens() -> nn.Module:
    layers = nn.Embedding(10, 16), nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 3)
    return settled(nn.Sequential(*layers))


@pytest.mark.slow
def test_tokens_are_pruned_and_those_beyond_the_vocabulary_named():
    model, fine = tokens(), torch.randint(0, 10, (64, 4), generator=torch.Generator().manual_seed(0))
    sound(prune(model, [fine], widths={"2": 8}), model, fine)
    beyond = torch.full((8, 4), 10)
    refused("Sequential cannot take a calibration batch of shape", model, [beyond], widths={"2": 6})
    refused("cannot take calibration images 65 to 72: index out of range", model, [fine, beyond], widths={"2": 6})


@pytest.mark.parametrize("label", [10**12, 5, -1])
def test_labels_beyond_the_classes_are_refused(label):
    batch = images(32), torch.full((32,), label)
    refused("needs labels from 0 to 4", make(Chain), [batch], widths={"conv1": 6}, method="molchanov2017")
    config = ldrf.FinetuneConfig(epochs=1, labels=1.0, logits=0.0, embeddings=0.0)
    with pytest.raises(ldrf.LdrfError, match="Labels must lie from 0 to 4"):
        ldrf.finetune(make(Chain), None, [batch], config=config)
    assert prune(make(Chain), [batch]).widths["conv1"] == 6, "labels are not read otherwise"


# Precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", [Chain, Mlp])
def test_other_precisions_are_kept_and_pruned_as_well(dtype, kind):
    layer, count = {Chain: ("conv1", 8), Mlp: ("first", 12)}[kind]
    model, wide = make(kind).to(dtype), make(kind)
    wide.load_state_dict(model.state_dict())
    result = prune(model, [images(48).to(dtype)], widths={layer: count})
    assert {p.dtype for p in result.model.parameters()} == {dtype}
    other = prune(wide, [images(48).to(dtype)], widths={layer: count})
    x = images(8, seed=5)
    with torch.no_grad():
        found, wanted = result.model.float()(x), other.model(x)
    tolerance = 8 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    assert float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max()) + 1e-4


def test_statistics_that_half_precision_cannot_hold_are_refused():
    refused(
        "numbers of 'bn1.running_var' do not fit torch.float16; prune a float32 copy",
        make(Chain).half(),
        [3e3 * images(32)],
    )


# Chance


class Dropped(Chain):
    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.bn1(self.conv1(x))), 0.2, training=True)
        return self.fc(F.relu(self.bn2(self.conv2(x))).mean((2, 3)))


class Noisy(Chain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x))


class Late(Chain):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x), 0.2, training=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Dropped, Noisy, Late])
def test_outputs_that_depend_on_chance_are_warned_of_and_pruned(kind):
    torch.manual_seed(0)
    model, x = settled(kind()), images(64)
    with pytest.warns(ldrf.LdrfWarning, match=f"{kind.__name__} {DROPPED}"):
        result = prune(model, [x], widths={"conv1": 8, "conv2": 12})
    assert result.model.conv1.out_channels == 8 and result.held_out.reconstructed <= result.held_out.cut
    plain, slim = make(Chain), Chain()
    plain.load_state_dict(model.state_dict())
    slim.conv1, slim.bn1, slim.conv2, slim.bn2, slim.fc = (
        getattr(result.model, name) for name in ("conv1", "bn1", "conv2", "bn2", "fc")
    )
    with torch.no_grad():  # without the noise, the slim network does what the dense one does
        gap = (slim.eval()(x) - plain(x)).square().sum() / plain(x).square().sum()
    assert float(gap) < 0.1


@pytest.mark.slow
def test_dropout_that_eval_turns_off_is_not_warned_of():
    model = settled(nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*calibration images give")
        prune(model.train(), [images(32)], widths={"1": 8})


def test_looking_for_chance_leaves_the_random_state_alone():
    model = make(Chain)
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    prune(model)
    assert torch.equal(torch.rand(3), wanted)
