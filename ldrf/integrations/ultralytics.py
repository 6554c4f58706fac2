"""Slim networks back into Ultralytics: a ``YOLO`` object that predicts, validates, exports and trains the slim model.

Nothing of ultralytics is imported here: what is changed is told by what the objects have.
"""

from typing import Any

from torch import nn

from ldrf.errors import LdrfError


def into_yolo(yolo: Any, slim: nn.Module) -> Any:
    """Put ``slim`` into ``yolo``, the ``YOLO`` object whose ``.model`` was pruned, and hand ``yolo`` back.

    Blocks keep half of a width as a number for the code that exports them. It is brought in line with their tensors.
    """
    if not isinstance(getattr(yolo, "model", None), nn.Module):
        raise LdrfError(f"'yolo' must be a YOLO object that holds a model. Got {type(yolo).__name__} instead.")
    if type(yolo.model) is not type(slim):
        raise LdrfError(
            f"The YOLO object holds a {type(yolo.model).__name__}, and the slim model is a {type(slim).__name__}: "
            "make the object from the file that the dense model came from."
        )
    for module in slim.modules():
        if hasattr(module, "forward_split") and isinstance(getattr(module, "c", None), int):
            vars(module)["c"] = _outputs(module) // 2
    yolo.model = slim
    yolo.predictor = None  # it holds the dense model
    return yolo


def _outputs(module: nn.Module) -> int:
    """The number of channels that a block splits in halves: the outputs of its first convolution."""
    return next(layer for layer in module.modules() if isinstance(layer, nn.Conv2d)).out_channels


def slim_trainer(yolo: Any) -> type:
    """A trainer for ``yolo.train(trainer=slim_trainer(yolo))``: Ultralytics' own builds a dense model from its file."""
    slim, kind = yolo.model, yolo._smart_load("trainer")

    class SlimTrainer(kind):
        """The trainer of this task, which trains the slim model as it is."""

        def get_model(self, *args: Any, **kwargs: Any) -> nn.Module:
            return slim.float().requires_grad_(True)

    return SlimTrainer
