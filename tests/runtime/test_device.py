import os

import pretend_device
import pytest
import torch
from networks import Chain, Tied, make
from torch import nn

from ldrf.errors import LdrfError
from ldrf.runtime import device as devices

PRETEND = torch.device("pretend", 0)


def test_by_default_the_device_is_that_of_the_model():
    with pretend_device.seen():
        model = make(Chain)
        assert devices.find_device(None, model) == devices.CPU
        assert devices.find_device(None, model.to("pretend")) == PRETEND
        assert devices.find_device(None) == devices.CPU
        assert devices.model_device(nn.ReLU()) == devices.CPU


def test_auto_is_an_accelerator_where_there_is_one():
    assert devices.find_device("auto") == devices.CPU and devices.accelerator() is None
    with pretend_device.seen():
        assert devices.find_device("auto") == devices.find_device("pretend") == PRETEND
        assert devices.find_device("cpu") == devices.find_device(torch.device("cpu", 0)) == devices.CPU


@pytest.mark.parametrize("name", ["cuda:0", "pretend", "gpu", 3.5])
def test_a_device_that_is_not_there_is_refused(name: str):
    with pytest.raises(LdrfError, match="device"):
        devices.find_device(name)


def test_an_index_that_is_not_there_is_refused():
    with pretend_device.seen(), pytest.raises(LdrfError, match="torch finds 1 of type 'pretend', from 0 on"):
        devices.find_device("pretend:1")


def test_a_model_on_two_devices_is_refused():
    with pretend_device.seen():
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to("pretend"))
        with pytest.raises(LdrfError, match="Got cpu and pretend:0"):
            devices.model_device(model)


def test_float64_is_computed_on_the_cpu_where_a_device_has_none():
    with pretend_device.seen() as state:
        there = torch.ones(2).to("pretend")
        assert devices.exact(there).device == PRETEND and devices.exact(there).dtype == torch.float64
        state.has_float64 = False
        devices.has_float64.cache_clear()
        assert devices.exact(there).device == devices.CPU
        assert devices.single(devices.exact(there), there).device == PRETEND


def test_memory_of_a_device_is_told_and_that_of_the_cpu_is_not():
    assert devices.free_bytes(devices.CPU) is None and devices.peak_bytes(devices.CPU) is None
    with pretend_device.seen(limit=10_000_000) as state:
        free = devices.free_bytes(PRETEND)
        assert free is not None and free == 10_000_000 - state.used
        devices.reset_peak(PRETEND)
        before = devices.peak_bytes(PRETEND)
        kept = torch.zeros(1000, device="pretend")
        assert before is not None and devices.peak_bytes(PRETEND) == before + 4 * kept.numel()
        assert devices.device_budget(PRETEND, None) == int(devices.SHARE * (free - 4000))
        assert devices.device_budget(PRETEND, 123) == 123


def test_a_copy_in_the_hosts_memory_is_laid_out_alike():
    with pretend_device.seen():
        there = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).to("pretend")
        copied = devices.host_copy(there)
        assert copied.device == devices.CPU and copied.stride() == there.stride()
        assert torch.equal(copied, there.cpu())


def test_names_tell_the_type_and_the_index():
    assert devices.device_name(devices.CPU) == "cpu"
    with pretend_device.seen():
        assert devices.device_name(PRETEND) == "pretend:0"


@pytest.mark.parametrize("fast", [True, False])
def test_auto_is_bfloat16_where_it_is_fast(fast: bool, monkeypatch):
    monkeypatch.setattr(devices, "has_bfloat16", lambda _device: fast)
    assert devices.descent_precision(devices.CPU, "auto") == ("bfloat16" if fast else "float32")
    for asked in ("bfloat16", "float32"):
        assert devices.descent_precision(devices.CPU, asked) == asked


def test_only_bfloat16_changes_the_precision_within():
    x = torch.randn(3, 4)
    with devices.forward_precision(devices.CPU, "float32"):
        assert (x @ x.T).dtype == torch.float32
    with devices.forward_precision(devices.CPU, "bfloat16"):
        assert (x @ x.T).dtype == torch.bfloat16


def test_each_process_is_bound_to_an_accelerator_if_there_are_enough(monkeypatch: pytest.MonkeyPatch):
    bound: list[int] = []
    monkeypatch.setattr(torch.accelerator, "set_device_index", bound.append)
    monkeypatch.setitem(os.environ, "LOCAL_RANK", "1")
    monkeypatch.setitem(os.environ, "LOCAL_WORLD_SIZE", "2")
    assert devices.bind_rank() == (devices.CPU, "gloo")
    with pretend_device.seen():
        assert devices.bind_rank() == (devices.CPU, "gloo") and bound == []  # one device for two processes
        assert devices.find_device("auto") == devices.CPU
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
        assert devices.bind_rank() == (torch.device("pretend", 1), "gloo") and bound == [1]
        # As with CUDA, whose own backend is NCCL.
        monkeypatch.setitem(torch.distributed.Backend.default_device_backend_map, "pretend", "fast")
        monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: name == "fast")
        assert devices.bind_rank()[1] == "cpu:gloo,pretend:fast"


def test_random_numbers_go_on_as_if_none_had_been_drawn():
    torch.manual_seed(0)
    wanted = torch.rand(2)
    torch.manual_seed(0)
    with devices.kept_random_state():
        torch.rand(5)
    assert torch.equal(torch.rand(2), wanted)


def test_the_pretend_device_behaves_as_a_device_does():
    with pretend_device.seen(limit=10_000_000) as state:
        model, x = make(Chain), torch.randn(2, 3, 8, 8)
        there = make(Chain).to("pretend")
        with pytest.raises(RuntimeError, match="same device"):
            there(x)
        before = state.convolutions()
        torch.testing.assert_close(there(x.to("pretend")).cpu(), model(x))
        assert state.convolutions() > before
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(2, device="pretend", generator=torch.Generator())
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(3_000_000, device="pretend")
        tied = make(Tied).to("pretend")
        tensors = [id(p) for p in tied.parameters()]
        names = dict(tied.named_parameters(remove_duplicate=False))
        assert len(names) > len(tensors)


def test_other_tests_do_not_see_the_pretend_device():
    assert not torch.accelerator.is_available() and torch.accelerator.device_count() == 0
    assert torch.zeros(1).device == devices.CPU and torch.get_default_device() == devices.CPU
