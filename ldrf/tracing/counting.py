"""What a network costs as it stands: multiply-accumulates, counted without data, and parameters."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ldrf.inputs import Inputs
from ldrf.runtime.device import model_device
from ldrf.tracing.export import working_copy


def count_macs(model: nn.Module, example: Inputs) -> int:
    """MACs of one forward pass per example, counted on a copy without data (conv, linear, matmul)."""
    few = example.first(1)
    try:
        macs = _counted(working_copy(model).to("meta"), few.map(lambda t: t.to("meta")))
    except Exception:  # its code makes tensors of its own on the CPU, or looks at values
        copied = working_copy(model)
        macs = _counted(copied, few.to(model_device(copied)))
    return macs // few.rows


def count_call(model: nn.Module, inputs: Inputs) -> int:
    """MACs of one call of a model in eval mode with these very inputs, whatever its code does with them."""
    return _counted(working_copy(model), inputs)


def _counted(model: nn.Module, inputs: Inputs) -> int:
    model.requires_grad_(False)  # the counter looks for gradients behind parameters that are given to modules
    # Fused attention has no counter on the CPU; its plain form is made of products that have one.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH), plain_attention():
        inputs.call(model)
    return counter.get_total_flops() // 2


@contextmanager
def plain_attention() -> Iterator[None]:
    """``nn.MultiheadAttention`` within is made of calls that can be counted, not of one that cannot."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
