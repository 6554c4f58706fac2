"""``torch.compile`` with its default backend, weights frozen; needs a C++ compiler."""

import shutil

import torch
from torch import nn

from ldrf.deployment.folding import folded_copy
from ldrf.deployment.runtime import Prepared, Runtime
from ldrf.deployment.runtimes.torch import time_pieces
from ldrf.deployment.stopwatch import torch_threads
from ldrf.errors import LdrfError, first_line
from ldrf.inputs import Inputs


def prepare(model: nn.Module, inputs: Inputs, threads: int) -> Prepared:
    """The folded network, compiled for this batch."""
    folded = folded_copy(model, inputs)
    torch._dynamo.reset()  # what was compiled for other widths is not wanted any more
    compiled = torch.compile(folded, options={"freezing": True}, dynamic=False)
    try:
        with torch_threads(threads), torch.no_grad():
            inputs.call(compiled)  # pyright: ignore[reportArgumentType]
    except Exception as problem:
        raise LdrfError(f"torch.compile cannot take {type(model).__name__}: {first_line(problem)}") from problem

    def call() -> object:
        with torch.inference_mode(False), torch.no_grad():
            return inputs.call(compiled)  # pyright: ignore[reportArgumentType]

    return Prepared(call)


def _version() -> str | None:
    return torch.__version__ if shutil.which("g++") or shutil.which("clang++") else None


# Convolutions and products are the calls of oneDNN that eager torch makes, so their times are those of torch.
ENTRY = Runtime(_version, "torch.compile needs a C++ compiler such as g++", prepare, time_pieces)
