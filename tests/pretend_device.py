"""A device that is none: tensors called ``pretend`` whose numbers lie on the CPU, to see where the library computes.

As on a real device, a tensor with dimensions must not meet one of another device, random numbers need a generator of
the device, and memory can run out. torch offers this to Python by a private interface (torch 2.13); where that is
absent, tests that need it are skipped.

It is registered once in a process, before anything is differentiated: torch starts a thread for each device then. It
is hidden, and ``torch.accelerator`` finds it only within :func:`seen`.
"""

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch

from ldrf.runtime import device

NAME = "pretend"
COPIES = ("aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::_local_scalar_dense")
INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index_put")
FACTORIES = (
    *("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step", "eye", "eye.m"),
    *("linspace", "randperm", "randperm.generator", "tril_indices", "triu_indices"),
)


class State:
    """What the device knows of itself; tests set ``limit`` and ``has_float64`` within :func:`seen`."""

    calls: Counter[str] = Counter()  # how often each operator ran on the device
    used = 0  # bytes
    peak = 0
    limit: int | None = None  # bytes at which memory runs out
    has_float64 = True
    is_seen = False
    storages: dict[int, Any] = {}

    @classmethod
    def convolutions(cls) -> int:
        return sum(n for name, n in cls.calls.items() if "convolution" in name)

    @classmethod
    def note(cls, held: Tensor) -> None:
        """Count the memory of a new tensor, once however many views of it there are."""
        storage = held.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in cls.storages:
            return
        if cls.limit is not None and cls.used + size > cls.limit:
            raise torch.OutOfMemoryError(f"pretend out of memory: {size} bytes beside {cls.used} of {cls.limit}.")

        def freed(_: Any) -> None:
            del cls.storages[key]
            cls.used -= size

        cls.storages[key] = weakref.ref(storage, freed)
        cls.used += size
        cls.peak = max(cls.peak, cls.used)


class PretendTensor(torch.Tensor):
    """A tensor of the pretend device: ``held`` has its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "PretendTensor":
        if held.dtype == torch.float64 and not State.has_float64:
            raise TypeError("the pretend device has no float64")
        State.note(held)
        made = torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
            storage_size=held.untyped_storage().nbytes(),
        )
        made.held = held
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"pretend {self.held!r}"

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> "PretendTensor":
        made = PretendTensor(self.held.clone()).requires_grad_(self.requires_grad)
        vars(made).update({name: value for name, value in vars(self).items() if name != "held"})  # of a parameter
        made.grad = None if self.grad is None else self.grad.clone()
        memo[id(self)] = made
        return made  # pyright: ignore[reportReturnType]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore


def dispatched(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on the numbers of its tensors, after looking whether these may meet."""
    name = func._schema.name
    State.calls[name] += 1
    given = [*_leaves(args), *_leaves(tuple(kwargs.values()))]
    _check_alike(name, given, args)
    wrappers = {id(t.held): t for t in given if type(t) is PretendTensor}
    bare = {key: _mapped(_held, value) for key, value in kwargs.items() if key != "pin_memory"}
    there = bare.get("device") is None or torch.device(bare["device"]).type == NAME
    if "device" in bare and there:
        bare["device"] = torch.device("cpu")
    made = func(*_mapped(_held, args), **bare)
    if torch.Tag.inplace_view in func.tags:  # such as squeeze_: the tensor itself has another shape now
        with no_dispatch():
            func(*args, **kwargs)
    if name == "aten::copy_" and type(args[0]) is not PretendTensor:
        return args[0]
    if not there:  # a copy away from the device
        return made.clone() if id(made) in wrappers else made

    def wrapped(value: Any) -> Any:
        known = wrappers.get(id(value))
        return known if known is not None else PretendTensor(value) if isinstance(value, Tensor) else value

    return _mapped(wrapped, made)


def _held(value: Any) -> Any:
    return value.held if type(value) is PretendTensor else value


def _leaves(value: Any) -> list[Any]:
    """What tuples and lists hold: torch's own walk over structures takes longer than the operators."""
    if type(value) in (tuple, list):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def _mapped(change: Any, value: Any) -> Any:
    return type(value)(_mapped(change, part) for part in value) if type(value) in (tuple, list) else change(value)


def _check_alike(name: str, given: list[Any], args: Any) -> None:
    if any(isinstance(value, torch.Generator) for value in given):
        raise RuntimeError(f"Expected a 'pretend' generator in {name}, but found one of the CPU")
    if name in COPIES:
        return
    # As on any device, indices may lie on the CPU; but those on the device fit no other tensor.
    meeting = [args[0], *args[2:3]] if name in INDEXING else given
    foreign = [t for t in meeting if isinstance(t, Tensor) and type(t) is not PretendTensor and t.ndim]
    if foreign:
        shapes = [tuple(t.shape) for t in foreign]
        raise RuntimeError(f"Expected all tensors to be on the same device in {name}, found cpu {shapes} and pretend")


class _Module:
    """What ``torch.pretend`` is."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return State.is_seen

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return int(State.is_seen)

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None: ...

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def can_register() -> bool:
    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


@cache
def register() -> Any:
    """Make the device known to torch, once; what it returns must be kept."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library = torch.library.Library("aten", "IMPL")

    def kernel(op: Any):
        def run(*args: Any, **kwargs: Any) -> Any:
            return dispatched(op, args, kwargs)

        return run

    for full in FACTORIES:
        name, _, overload = full.partition(".")
        packet = getattr(torch.ops.aten, name)
        op = getattr(packet, overload or "default", None)
        if op is not None:
            library.impl(full, kernel(op), "PrivateUse1")

    def copied(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
        return dispatched(torch.ops.aten.copy_.default, (target, source, non_blocking), {})

    library.impl("_copy_from", copied, "PrivateUse1")
    return library


@contextmanager
def seen(limit: int | None = None, has_float64: bool = True) -> Iterator[type[State]]:
    """Within, ``torch.accelerator`` finds the device, its counters start at zero, and it has so much memory."""
    if not can_register():
        pytest.skip("this torch cannot register a device in Python")
    register()
    device.has_float64.cache_clear()
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # tied tensors stay tied in Module.to
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "is_seen", True)
        patch.setattr(State, "limit", limit)
        patch.setattr(State, "has_float64", has_float64)
        for name, act in _memory_functions().items():
            patch.setattr(torch.accelerator, name, act, raising=False)
        State.calls.clear()
        State.peak = State.used
        try:
            yield State
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swaps)
            device.has_float64.cache_clear()


def _memory_functions() -> dict[str, Any]:
    """torch.accelerator's own, which know devices of C++ alone."""

    def reset(_: Any = None) -> None:
        State.peak = State.used

    total = 2**40 if State.limit is None else State.limit
    return {
        "get_memory_info": lambda _=None: ((total if State.limit is None else State.limit) - State.used, total),
        "max_memory_allocated": lambda _=None: State.peak,
        "reset_peak_memory_stats": reset,
        "empty_cache": lambda: None,
        "synchronize": lambda _=None: None,
    }
