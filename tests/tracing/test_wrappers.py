"""Models are pruned as they are inside their wrappers: same names, same class."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false

import copy
from contextlib import suppress
from types import MethodType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from networks import Chain, images, make
from torch import nn

import ldrf
from ldrf.cli.vision import import_vision
from ldrf.errors import LdrfError
from ldrf.tracing.wrappers import unwrapped


def test_wrappers_are_taken_off_in_any_order():
    model = make(Chain)
    compiled = torch.compile(model, backend="eager")
    assert all(unwrapped(m) is model for m in (model, compiled, nn.DataParallel(model), nn.DataParallel(compiled)))
    assert unwrapped(torch.compile(nn.DataParallel(model), backend="eager")) is model


@pytest.mark.slow
def test_a_wrapped_model_is_pruned_saved_and_loaded_as_the_plain_class(tmp_path):
    config = ldrf.PruneConfig(steps=2, joint_steps=2)
    model = nn.DataParallel(torch.compile(make(Chain), backend="eager"))
    result = ldrf.prune(model, [images(12)], widths={"conv1": 5}, config=config)
    assert type(result.model) is Chain and type(model) is nn.DataParallel
    loaded = ldrf.load(ldrf.save(result, tmp_path / "slim"), make(Chain, 1))
    assert torch.equal(loaded(images(3)), result.model(images(3)))


def prepared(model: nn.Module) -> nn.Module:
    """The model as accelerate prepares it for mixed precision: another forward, written into the model."""
    forward = type(model).forward

    def in_float32(self: nn.Module, *args: Any) -> Any:
        return forward(model, *args).float()  # the model itself, whatever copy this is called on

    vars(model)["_original_forward"] = model.forward
    vars(model)["forward"] = MethodType(in_float32, model)
    return model


def test_a_prepared_model_is_seen_plain_and_stays_prepared():
    model = prepared(make(Chain))
    plain = unwrapped(model)
    assert "forward" in vars(model) and "forward" not in vars(plain) and type(plain) is Chain
    assert all(one is other for one, other in zip(plain.parameters(), model.parameters(), strict=True))
    assert torch.equal(plain(images(2)), make(Chain)(images(2)))


class PeftModel(nn.Module):
    """Looks as peft's: a model with something more in its first layer, which can be merged into it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.more = model, nn.Parameter(torch.ones(()))

    def merge_and_unload(self) -> nn.Module:
        self.model.get_submodule("conv1").weight.data.add_(self.more)
        return self.model


def test_adapters_are_merged_in_a_copy():
    model = make(Chain)
    weight = model.conv1.weight.clone()
    merged = unwrapped(PeftModel(model))
    assert type(merged) is Chain and torch.equal(merged.conv1.weight, weight + 1)
    assert torch.equal(model.conv1.weight, weight)


@pytest.mark.parametrize("wrap", [prepared, PeftModel], ids=["accelerate", "peft"])
def test_what_was_prepared_or_adapted_is_pruned_saved_and_loaded_as_the_plain_class(wrap, tmp_path):
    config = ldrf.PruneConfig(solver="closed-form")
    plain = unwrapped(wrap(make(Chain)))
    result = ldrf.prune(wrap(make(Chain)), [images(12)], widths={"conv1": 5}, config=config)
    wanted = ldrf.prune(copy.deepcopy(plain), [images(12)], widths={"conv1": 5}, config=config).model
    loaded = ldrf.load(ldrf.save(result, tmp_path / "slim"), make(Chain, 1))
    assert type(result.model) is Chain and "forward" not in vars(result.model)
    assert torch.equal(loaded(images(3)), wanted(images(3)))


def test_a_model_of_a_process_group_is_taken_off(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        model = make(Chain)
        assert unwrapped(nn.parallel.DistributedDataParallel(model)) is model
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["merged", "not merged"])
def test_real_adapters_of_peft_are_merged(kind):
    with suppress(LdrfError):  # peft imports transformers, and that torchvision
        import_vision("torchvision")
    peft = pytest.importorskip("peft", reason="peft is not installed")
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    model = peft.get_peft_model(net, peft.LoraConfig(target_modules=["0"], init_lora_weights=False)).eval()
    if kind == "merged":
        model.merge_adapter()
    x = torch.randn(40, 6)
    torch.testing.assert_close(unwrapped(model)(x), model(x))
    result = ldrf.prune(model, [x], widths={"0": 8}, config=ldrf.PruneConfig(solver="closed-form"))
    assert type(result.model) is nn.Sequential and list(result.model.state_dict())[0] == "0.weight"


def test_a_model_that_accelerate_prepared_is_pruned():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    model = accelerate.Accelerator(cpu=True, mixed_precision="bf16").prepare(net)
    x = torch.randn(40, 6)
    result = ldrf.prune(model, [x], widths={"0": 8}, config=ldrf.PruneConfig(solver="closed-form"))
    assert type(result.model) is nn.Sequential and result.model[0].out_features == 8
    assert not {"forward", "_original_forward"} & vars(result.model).keys()
