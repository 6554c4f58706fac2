"""The model inside the wrappers that training loops put around it."""

import copy
import warnings
from typing import Any

from torch import nn

PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
LENT = ("_original_forward", "forward")  # what accelerate writes into a model that it casts the outputs of


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile, DataParallel, DistributedDataParallel, accelerate and PEFT, or the model itself.

    Names of layers and the class of the result are those of the inner model. What accelerate prepared shares its
    tensors with the model given; adapters of PEFT are merged in a copy.
    """
    while True:
        inner = _inner(model)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _inner(model: nn.Module) -> Any:
    """What is inside the outermost wrapper, or None."""
    if isinstance(model, PARALLEL):
        return model.module
    if type(model).__name__ == "OptimizedModule":
        return vars(model).get("_modules", {}).get("_orig_mod")
    if all(name in vars(model) for name in LENT):
        plain = copy.copy(model)
        for name in LENT:
            del vars(plain)[name]
        return plain
    if any(kind.__name__ == "PeftModel" for kind in type(model).__mro__):
        merged: Any = copy.deepcopy(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some were merged before
            return merged.merge_and_unload()
    return None
