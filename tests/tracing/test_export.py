"""Models of all sorts are exported with a free batch size, or refused with the line that stands in the way."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from networks import (
    Branches,
    assert_same_outputs,
    images,
)
from torch import Tensor, nn

import ldrf
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs, read_inputs
from ldrf.tracing.counting import count_macs
from ldrf.tracing.export import export_program, has_free_batch, known_size, working_copy
from ldrf.tracing.interpreter import folded
from ldrf.tracing.trace import trace


def test_an_untraceable_model_is_refused_with_the_line():
    class Undecided(nn.Module):
        def forward(self, x):
            if x.sum() > 0:  # the line
                x = 2 * x
            return x

    with pytest.raises(LdrfError, match=r"torch.export cannot trace Undecided at .*test_export.py:\d+ \(if x.sum\(\)"):
        trace(Undecided(), Inputs((images(3),), {}))


def test_working_copy_is_another_model_in_eval_mode_and_float32():
    model = Branches().half().train()
    copied = working_copy(model)
    assert not copied.training and model.training
    assert copied.trunk.weight.dtype is torch.float32 and model.trunk.weight.dtype is torch.float16
    assert torch.equal(copied.trunk.weight.half(), model.trunk.weight)


class Counting(nn.Module):
    """Its code turns the number of images into a plain one."""

    def __init__(self, count: Callable[[Tensor], int]) -> None:
        super().__init__()
        self.count = count
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu().reshape(self.count(x), -1))


@pytest.mark.slow
@pytest.mark.parametrize("count", [len, lambda x: int(x.shape[0]), lambda x: x.size()[0]], ids=["len", "int", "size"])
def test_a_batch_that_the_code_counts_stays_free(count):
    model = Counting(count)
    found = ldrf.inspect(model, [images(6, shape=(3, 4, 4))])
    assert found.macs == count_macs(model, Inputs((images(1, shape=(3, 4, 4)),), {}))
    assert found.share == 1.0 and found.speedup > 1
    result = ldrf.prune(model, [images(20, shape=(3, 4, 4))], widths={"first": 4}, config=ldrf.PruneConfig(steps=2))
    assert result.model(images(7, shape=(3, 4, 4))).shape == (7, 5)


@pytest.mark.slow
def test_a_batch_that_cannot_be_free_is_fixed_in_the_graph_alone():
    model, x = Counting(lambda x: len(list(x))), images(20, shape=(3, 4, 4))
    result = ldrf.prune(model, [x], widths={"first": 4}, config=ldrf.PruneConfig(steps=2))
    assert result.example.fixed and result.model(x[:7]).shape == (7, 5)


@pytest.mark.parametrize(("fixed", "free"), [(False, True), (True, False)])
def test_a_program_is_for_one_batch_size_where_that_is_fixed(fixed, free):
    program = export_program(nn.Linear(4, 2), Inputs((images(5, shape=(4,)),), {}, fixed))
    assert has_free_batch(program) is free
    given = next(n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs)
    assert fixed is (known_size(given.meta["val"].shape[0]) == 5)


class Remembering(nn.Module):
    """A detector's head: it makes its grid anew where the shape is another than the last it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.shape: torch.Size | None = None
        self.grid = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.shape != x.shape:
            self.shape, self.grid = x.shape, torch.arange(x.shape[-1], dtype=x.dtype)
        return self.last(F.relu(self.first(x))) + self.grid


def test_a_model_that_remembers_the_last_shape_is_traced_for_any_batch():
    model = Remembering().eval()
    model(images(2, shape=(3, 4, 4)))
    result = ldrf.prune(model, [images(20, shape=(3, 4, 4))], widths={"first": 4}, config=ldrf.PruneConfig(steps=2))
    assert model.shape == (2, 3, 4, 4) and all(isinstance(size, int) for size in result.model.shape)
    assert result.model(images(7, shape=(3, 6, 6))).shape == (7, 4, 6, 6)


def test_a_class_without_a_file_is_refused_in_one_sentence(capfd):
    space = {"nn": nn}
    exec("class Typed(nn.Module):\n    def forward(self, x):\n        return x if x.sum() > 0 else 2 * x", space)
    space["Typed"].__module__ = "nowhere"
    with pytest.raises(LdrfError, match=r"torch.export cannot trace Typed"):
        trace(space["Typed"](), Inputs((images(3),), {}))
    assert capfd.readouterr() == ("", "")  # torch's own words are not for the user


class Wrapped(nn.Module):
    """Hands on whatever it is given, as torch's own wrappers do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        return self.net(*args, **kwargs)


@pytest.mark.slow
def test_wrappers_that_hand_on_what_they_get_are_traced():
    config = ldrf.PruneConfig(steps=2, joint_steps=2)
    result = ldrf.prune(Wrapped(), [images(12)], widths={"net.0": 4}, config=config)
    assert type(result.model) is Wrapped and result.model(images(3)).shape[1] == 4


class ByName(nn.Module):
    """Takes all, or all but the first, of its inputs by whatever name they come."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = nn.Linear(8, 16), nn.Linear(3, 16), nn.Linear(16, 4)

    def forward(self, **given: Tensor) -> Tensor:
        return self.last(F.relu(self.one(given["x"])) * torch.sigmoid(self.two(given["y"])))


class PartlyByName(ByName):
    def forward(self, x: Tensor, **given: Tensor) -> Tensor:
        return super().forward(x=x, **given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ByName, PartlyByName])
@pytest.mark.parametrize("order", ["xy", "yx"])
def test_models_that_take_keywords_of_any_name_are_pruned_and_exported(kind, order, tmp_path):
    inputs = {"x": torch.randn(40, 8), "y": torch.randn(40, 3)}
    batch, model = {name: inputs[name] for name in order}, kind()
    graph = trace(model, read_inputs(model, batch))
    assert_same_outputs(model, graph, folded(graph, model), read_inputs(model, batch))
    result = ldrf.prune(model, [batch], widths={"one": 9}, config=ldrf.PruneConfig(steps=2, joint_steps=2))
    assert type(result.model) is kind and "forward" not in vars(result.model) and "forward" not in vars(model)
    assert result.model(**batch).shape == (40, 4) and result.model.two.out_features == 9
    for name in ("slim.pt2", "slim.onnx"):
        ldrf.export(result, tmp_path / name)  # which compares it with the model


def test_a_model_that_cannot_be_copied_is_refused_with_the_way_out():
    layer = nn.Linear(3, 3)
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(layer)
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 3))
    model(torch.randn(2, 3))
    with pytest.raises(LdrfError, match=r"Sequential cannot be copied.*remove_weight_norm"):
        working_copy(model)


class Flagged(nn.Sequential):
    """As transformers makes of a quantised file that it has read in full precision."""

    def float(self):
        raise ValueError("`.float()` is not supported for quantized model.")


def test_a_model_from_a_quantised_file_is_pruned_where_its_weights_are_floating_point():
    model = Flagged(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).bfloat16()
    x = torch.randn(40, 6)
    result = ldrf.prune(model, [x], widths={"0": 8}, config=ldrf.PruneConfig(solver="closed-form"))
    assert type(result.model) is Flagged and result.model[0].weight.shape == (8, 6)


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_a_model_of_quantised_weights_is_refused_in_a_sentence(kind):
    model, whole = nn.Sequential(nn.Linear(6, 16)), torch.zeros(16, 6, dtype=torch.int8)
    if kind == "parameter":
        model[0].weight = nn.Parameter(whole, requires_grad=False)
    else:
        model[0].register_buffer("qweight", whole)
    with pytest.raises(LdrfError, match=r"Sequential is quantised \(its '0\.q?weight' is in int8\).*dequantize"):
        working_copy(model)
