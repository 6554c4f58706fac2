"""How much memory a forward pass needs at once, counted rather than sampled, so the same on every machine."""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ldrf.inputs import Inputs


class _LiveBytes(TorchDispatchMode):
    """Adds every new storage when an operation makes it, and takes it off when it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(outputs):
            if isinstance(tensor, Tensor):
                self.add(tensor)
        return outputs

    def add(self, tensor: Tensor) -> None:
        """Count the tensor's storage, once however many views of it there are."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()

        def freed(_: Any) -> None:
            del self._seen[key]
            self.now -= size

        self._seen[key] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)


@torch.no_grad()
def peak_bytes(model: nn.Module, inputs: Inputs) -> int:
    """Bytes of weights, inputs and activations alive at the same time in one call of ``model``, at most."""
    with _LiveBytes() as live:
        for tensor in (*model.parameters(), *model.buffers(), *inputs.tensors()):
            live.add(tensor)
        inputs.call(model)
    return live.peak
