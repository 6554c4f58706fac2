"""The one module that knows devices: where to compute, what a device can do, and how much memory it has.

Written against ``torch.accelerator``, so that CUDA, ROCm, XPU and MPS take one path.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ldrf.errors import LdrfError

T = TypeVar("T")

CPU = torch.device("cpu")
AUTO = "auto"
Device = str | torch.device
SHARE = 0.5  # of the memory that is free on a device, for activations that are kept; the rest is to compute in
UNKNOWN = 2**30  # bytes for them where torch cannot tell what is free
OutOfMemory = torch.OutOfMemoryError


def find_device(device: Device | None, model: nn.Module | None = None) -> torch.device:
    """The device to compute on: the one named, for "auto" an accelerator if there is one, for None the model's own."""
    if device is None:
        return model_device(model) if model is not None else CPU
    there = accelerator()
    if device == AUTO:
        return there if there is not None and _enough_devices() else CPU
    try:
        asked = torch.device(device)
    except (RuntimeError, TypeError) as problem:
        raise LdrfError(
            f"The 'device' must be auto, cpu, or the name of an accelerator such as cuda:0. Got {device!r} instead."
        ) from problem
    if asked.type == "cpu":
        return CPU
    if there is None or there.type != asked.type:
        here = f"an accelerator of type '{there.type}'" if there else "no accelerator"
        raise LdrfError(f"The device '{asked}' is not there: torch finds {here} here. Use device='auto' or 'cpu'.")
    count = torch.accelerator.device_count()
    if asked.index is not None and asked.index >= count:
        raise LdrfError(f"The device '{asked}' is not there: torch finds {count} of type '{asked.type}', from 0 on.")
    return asked if asked.index is not None else there


def _enough_devices() -> bool:
    """Whether every process that torchrun started on this machine can have an accelerator of its own."""
    return torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def accelerator() -> torch.device | None:
    """The accelerator that this process is bound to, if there is one."""
    there = torch.accelerator.current_accelerator(check_available=True)
    return None if there is None else torch.device(there.type, torch.accelerator.current_device_index())


def model_device(model: nn.Module) -> torch.device:
    """Where a model's tensors are: all of them on one device."""
    devices = {tensor.device for tensor in model.parameters()} or {tensor.device for tensor in model.buffers()}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise LdrfError(
            f"The tensors of {type(model).__name__} must be on one device. Got {names}: move the model to one, or pass "
            "device= to compute there."
        )
    return devices.pop() if devices else CPU


def exact(tensor: Tensor) -> Tensor:
    """The tensor in float64, for sums and solves: on its own device, or on the CPU where that has no float64."""
    return tensor.to(exact_device(tensor.device), torch.float64)


def single(tensor: Tensor, like: Tensor) -> Tensor:
    """The way back from :func:`exact`: the tensor in float32, on the device of ``like``."""
    return tensor.to(like.device, torch.float32)


def exact_device(device: torch.device) -> torch.device:
    """Where float64 is computed for tensors of this device."""
    return device if device.type == "cpu" or has_float64(device) else CPU


@lru_cache
def has_float64(device: torch.device) -> bool:
    """Whether a device computes in float64; Apple's and some of Intel's do not."""
    try:
        one = torch.ones(1, 1).to(device, torch.float64)
        return float(one @ one) == 1.0
    except (RuntimeError, TypeError):
        return False


def forward_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Within, convolutions and products run in this precision; float32 changes nothing."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, precision))


def descent_precision(device: torch.device, precision: str) -> str:
    """What "auto" means in gradient steps, which bfloat16 leads as far: it, where it is faster than float32."""
    if precision != "auto":
        return precision
    return "bfloat16" if has_bfloat16(device) else "float32"


@cache
def has_bfloat16(device: torch.device) -> bool:
    """Whether a processor or graphics card has products of bfloat16 of its own, which are faster than float32's."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    told = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return device.type == CPU.type and any(ask() for ask in told if ask is not None)


def device_name(device: torch.device) -> str:
    """The device in words: "cuda:0 (NVIDIA A10G)", or "cpu"."""
    if device.type == "cpu":
        return "cpu"
    named = getattr(torch.get_device_module(device), "get_device_name", None)
    return str(device) if named is None else f"{device} ({named(device)})"


def free_bytes(device: torch.device) -> int | None:
    """Bytes that are free on a device; None of the CPU, and where torch cannot tell."""
    return _asked(device, "get_memory_info", lambda info: int(info[0]))


def peak_bytes(device: torch.device) -> int | None:
    """The most bytes that tensors took on a device since :func:`reset_peak`; None as above."""
    return _asked(device, "max_memory_allocated", int)


def reset_peak(device: torch.device) -> None:
    """Start :func:`peak_bytes` anew."""
    _asked(device, "reset_peak_memory_stats", lambda _: None)


def kept_random_state() -> AbstractContextManager[Any]:
    """Afterwards random numbers go on as if none had been drawn within, on the CPU and on the accelerator."""
    there = accelerator()
    kept = getattr(torch.get_device_module(there), "get_rng_state", None) if there else None
    if there is None or kept is None:
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[there.index], device_type=there.type)


def device_budget(device: torch.device, asked: int | None) -> int:
    """Bytes that activations may take on a device: as many as were asked for, else a share of those free."""
    free = free_bytes(device) if asked is None else None
    return asked if asked is not None else UNKNOWN if free is None else int(SHARE * free)


def synchronise(device: torch.device) -> None:
    """Wait until a device has done what it was given: before a clock is read."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def give_back_memory(device: torch.device) -> None:
    """Return memory that torch keeps for later to the device, after it ran out."""
    if device.type != "cpu" and hasattr(torch.accelerator, "empty_cache"):
        torch.accelerator.empty_cache()


def _asked(device: torch.device, name: str, read: Callable[[Any], T]) -> T | None:
    """What a function of ``torch.accelerator`` says of a device; older versions of torch lack some of them."""
    ask = getattr(torch.accelerator, name, None)
    if device.type == "cpu" or ask is None:
        return None
    try:
        return read(ask(device))
    except (RuntimeError, NotImplementedError, AttributeError):  # not every device keeps account of its memory
        return None


def host_copy(tensor: Tensor) -> Tensor:
    """A tensor of a device in the host's memory, laid out alike, and pinned where possible: it returns faster."""
    try:
        copied = torch.empty_like(tensor, device=CPU, pin_memory=True)
    except (RuntimeError, NotImplementedError):
        copied = torch.empty_like(tensor, device=CPU)
    return copied.copy_(tensor)


def bind_rank() -> tuple[torch.device, str]:
    """Bind one of several processes to its own accelerator; the device, and the backends of torch.distributed for it.

    Where a machine has fewer accelerators than processes, all of them compute on the CPU.
    """
    dist, there = torch.distributed, torch.accelerator.current_accelerator(check_available=True)
    if there is None or not _enough_devices():
        return CPU, "gloo"
    local = int(os.environ.get("LOCAL_RANK", "0"))
    torch.accelerator.set_device_index(local)
    backend = dist.Backend.default_device_backend_map.get(there.type, "gloo")
    known = backend != "gloo" and dist.is_backend_available(backend)
    return torch.device(there.type, local), f"cpu:gloo,{there.type}:{backend}" if known else "gloo"
