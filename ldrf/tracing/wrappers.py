"""The model inside the wrappers that training loops put around it."""

from torch import nn

PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile, DataParallel and DistributedDataParallel, or the model itself.

    Names of layers and the class of the result are those of the inner model.
    """
    while True:
        inner = vars(model).get("_modules", {}).get("_orig_mod") if type(model).__name__ == "OptimizedModule" else None
        inner = model.module if isinstance(model, PARALLEL) else inner
        if not isinstance(inner, nn.Module):
            return model
        model = inner
