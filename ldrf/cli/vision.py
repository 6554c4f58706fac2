"""Import torchvision and timm even where torchvision was built for another build of torch."""

import importlib
import sys
from types import ModuleType

import torch

from ldrf.errors import LdrfError

_SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))
_defined: list[torch.library.Library] = []  # a library's operators live as long as it does


def import_vision(name: str) -> ModuleType:
    """Import ``torchvision`` or ``timm``, first defining the two operators that a foreign build fails to find."""
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise LdrfError(f"'{name}:' models need {name}: pip install 'ldrf[vision]'.") from problem
    except RuntimeError as problem:
        if "operator torchvision::" not in str(problem) or _defined:
            raise
    _define_operators()
    for module in [m for m in sys.modules if m.split(".")[0] in ("torchvision", "timm")]:
        del sys.modules[module]  # half imported
    return importlib.import_module(name)


def _define_operators() -> None:
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
    _defined.append(library)
