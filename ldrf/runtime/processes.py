"""Several processes that work on one network: who each of them is, and what they add up or agree on.

Every function is the identity in a single process. Work is started with ``torchrun``, or by whoever initialises
``torch.distributed``; the same batches are given to all, and each keeps its share of every chunk.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ldrf.errors import LdrfError, first_line
from ldrf.runtime.device import CPU, accelerator

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def count() -> int:
    """How many processes work together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return dist.get_rank() if count() > 1 else 0


def is_first() -> bool:
    """Whether this is the process that writes and prints."""
    return rank() == 0


def share(rows: int, turn: int = 0) -> tuple[int, int]:
    """Where this process's part of ``rows`` begins and ends; with ``turn`` few rows go to each in turn."""
    place = (rank() + turn) % count()
    return rows * place // count(), rows * (place + 1) // count()


def sum_over(tensor: Tensor) -> Tensor:
    """The sum of the processes' tensors, the same bits in all of them."""
    if count() == 1:
        return tensor
    carried = tensor.detach().to(_carrier(tensor.device), copy=True).contiguous()
    together(lambda: dist.all_reduce(carried))
    return carried.to(tensor.device)


def _carrier(device: torch.device) -> torch.device:
    """Where a tensor is summed over processes: on its device where their backend works there (NCCL), else on the CPU;
    and on the accelerator where the backend knows no CPU."""
    backends = dict(pair.split(":") for pair in dist.get_backend_config().split(","))
    if device.type == "cpu":
        return device if "cpu" in backends else accelerator() or device
    return device if backends.get(device.type, "gloo") != "gloo" else CPU


def sum_number(value: float) -> float:
    """The sum of one number of each process."""
    return float(sum_over(torch.tensor(value, dtype=torch.float64)))


def sum_all(own: Mapping[K, Tensor]) -> dict[K, Tensor]:
    """The sums by name, also where a process had no rows and so no tensor of that name."""
    if count() == 1:
        return dict(own)
    kinds: dict[K, tuple[torch.Size, torch.dtype, bool]] = {}
    for theirs in gather({name: (t.shape, t.dtype, t.device.type == "cpu") for name, t in own.items()}):
        kinds |= theirs
    # All must send by the same way: zeros lie on a device where the others' tensors do.
    return {
        name: sum_over(own[name] if name in own else torch.zeros(shape, dtype=dtype, device=_place(on_cpu)))
        for name, (shape, dtype, on_cpu) in kinds.items()
    }


def _place(on_cpu: bool) -> torch.device:
    return CPU if on_cpu else accelerator() or CPU


def gather(value: T) -> list[T]:
    """The values of all processes, in order."""
    if count() == 1:
        return [value]
    values: list[Any] = [None] * count()
    together(lambda: dist.all_gather_object(values, value))
    return values


def agreed(value: T) -> T:
    """The first process's value, for all: choices and weights never differ by the rounding of one machine."""
    if count() == 1:
        return value
    carrier: list[Any] = [value if is_first() else None]
    together(lambda: dist.broadcast_object_list(carrier))
    return carrier[0]


def from_first(make: Callable[[], T]) -> T:
    """What ``make`` returns or raises in the first process, the only one that calls it."""
    if count() == 1:
        return make()
    made: Any = None
    if is_first():
        try:
            made = make(), None
        except (LdrfError, OSError) as problem:
            made = None, problem
    value, problem = agreed(made)
    if problem is not None:
        raise problem
    return value


def turns(items: Sequence[T]) -> Sequence[T]:
    """The items that are this process's to do, when each is done by one process alone."""
    return items[rank() :: count()]


def joined(own: dict[K, V]) -> dict[K, V]:
    """What each process did in its :func:`turns`, for all of them."""
    return {name: value for part in gather(own) for name, value in part.items()}


def check_same(checksum: Callable[[], str], what: str) -> None:
    """Raise unless all processes were given the same ``what``: the same ``checksum``, which one process never takes."""
    if count() == 1:
        return
    if len(set(gather(checksum()))) > 1:
        raise LdrfError(
            f"All {count()} processes must be given the same {what}: each takes its own share of them. "
            "Got others in some: use no DistributedSampler, and the same seed where they are shuffled."
        )


def together(act: Callable[[], Any]) -> None:
    """Do something that all processes do at the same time, with a plain error where one of them is gone."""
    try:
        act()
    except RuntimeError as problem:
        raise LdrfError(
            f"Process {rank()} of {count()} lost the others, as one of them ended or cannot be reached: "
            f"{first_line(problem)}"
        ) from problem


class _SummedGradients(torch.autograd.Function):
    """The tensors as they are; their gradients are summed over processes, all in one message."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        whole = sum_over(torch.cat([slope.flatten() for slope in slopes]))
        return tuple(
            part.view_as(slope) for part, slope in zip(whole.split([s.numel() for s in slopes]), slopes, strict=True)
        )


def summed_gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same tensors for a loss over this process's rows: what comes back to them is the slope over all rows."""
    return _SummedGradients.apply(*tensors) if count() > 1 else tensors  # pyright: ignore[reportReturnType]


def no_loss(tensors: Iterable[Tensor]) -> Tensor:
    """The loss of a process without rows: zero, but it takes part in the sum of the slopes."""
    return torch.stack([0 * tensor.sum() for tensor in tensors]).sum()


class _Summed(torch.autograd.Function):
    """The sum of the processes' tensors; each of their losses depends on it, so its slopes are summed, too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return sum_over(tensor)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return sum_over(slope)


def summed(tensor: Tensor) -> Tensor:
    """The sum over processes as a part of each one's loss."""
    return _Summed.apply(tensor) if count() > 1 else tensor  # pyright: ignore[reportReturnType]


def sum_slopes(parameters: Iterable[Tensor]) -> None:
    """Replace the gradients of a loss over this process's rows by those over all rows."""
    slopes = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if count() == 1 or not slopes:
        return
    whole = sum_over(torch.cat([slope.flatten() for slope in slopes]))
    for slope, part in zip(slopes, whole.split([slope.numel() for slope in slopes]), strict=True):
        slope.copy_(part.view(slope.shape))
