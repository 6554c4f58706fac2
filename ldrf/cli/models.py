"""Models by name, as the command line takes them."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import ldrf
from ldrf.cli.arguments.base import RANDOM, is_result
from ldrf.cli.reaching import without_retries
from ldrf.cli.vision import import_vision
from ldrf.data.plugins import call_factory, is_factory
from ldrf.errors import LdrfError, first_line
from ldrf.files.record import read_record
from ldrf.files.tensor_files import read_safetensors, read_torch
from ldrf.runtime.device import find_device
from ldrf.runtime.randomness import same_random_numbers
from ldrf.zoo.cifar_resnet import resnet20, resnet56
from ldrf.zoo.pretrained import pretrained_vgg9
from ldrf.zoo.vgg9 import VGG9

ZOO: dict[str, Callable[[], nn.Module]] = {"vgg9": VGG9, "resnet20": resnet20, "resnet56": resnet56}
FORMS = f"{', '.join(ZOO)}, torchvision:NAME, timm:NAME, path/to/file.py:factory, or a result folder"


@dataclass(frozen=True)
class NamedModel:
    """A model with trained weights, and the names from which it can be made again."""

    model: nn.Module
    source: dict[str, str | None]


def open_model(
    name: str, weights: str | None = None, architecture: str | None = None, device: str = "cpu"
) -> NamedModel:
    """Make the named model, in evaluation mode, with its weights, on a device.

    ``architecture`` is the dense model of a result folder, for folders that do not name it.
    """
    there = find_device(device)  # first, as a wrong name should not wait for a model
    named = _opened(name, weights, architecture)
    return replace(named, model=named.model.to(there))


def _opened(name: str, weights: str | None, architecture: str | None) -> NamedModel:
    if is_result(name):
        return _open_result(Path(name), weights, architecture)
    if architecture is not None:
        raise LdrfError(f"--architecture is for result folders, and '{name}' is not one.")
    if weights is not None:
        with same_random_numbers():
            model = build(name)
        if weights != RANDOM:
            load_weights(model, weights)
    else:
        model = _trained(name)
    return NamedModel(model.eval(), {"model": name, "weights": weights})


def build(name: str) -> nn.Module:
    """The named architecture, its weights untrained."""
    kind, _, rest = name.partition(":")
    if name in ZOO:
        return ZOO[name]()
    if kind in ("torchvision", "timm") and rest:
        return _from_library(kind, rest, pretrained=False)
    if is_factory(name):
        return _from_factory(name)
    raise LdrfError(f"Unknown model '{name}': expected {FORMS}.")


def _trained(name: str) -> nn.Module:
    """The named model with the weights that come with it."""
    kind, _, rest = name.partition(":")
    if name == "vgg9":
        return pretrained_vgg9()
    if name in ZOO:
        raise LdrfError(
            f"'{name}' comes without weights: add --weights file.safetensors, or train it with 'ldrf train'."
        )
    if kind in ("torchvision", "timm") and rest:
        return _from_library(kind, rest, pretrained=True)
    return build(name)


def _from_library(kind: str, name: str, pretrained: bool) -> nn.Module:
    library = import_vision(kind)
    known = library.models.list_models() if kind == "torchvision" else library.list_models()
    stem, _, tag = name.partition(".")
    if stem not in known:
        near = get_close_matches(stem, known, 3)
        raise LdrfError(f"{kind} has no model '{name}'{': did you mean ' + ' or '.join(near) + '?' if near else '.'}")
    try:
        with without_retries(_address(kind, library, stem, tag)) if pretrained else nullcontext():
            if kind == "torchvision":
                return library.models.get_model(stem, weights=(tag or "DEFAULT") if pretrained else None)
            return library.create_model(name, pretrained=pretrained)
    except Exception as problem:
        hint = ": add --weights FILE, or --weights random for a trial" if pretrained else ""
        raise LdrfError(f"{kind} could not make '{name}' ({first_line(problem).rstrip('.')}){hint}.") from problem


def _address(kind: str, library: Any, stem: str, tag: str) -> str:
    """Where a library fetches the weights of a model from, by its own word."""
    if kind == "torchvision":
        return library.models.get_model_weights(stem)[tag or "DEFAULT"].url
    from huggingface_hub import constants

    return constants.ENDPOINT


def _from_factory(name: str) -> nn.Module:
    model = call_factory(name)
    if not isinstance(model, nn.Module):
        raise LdrfError(f"'{name}' must return a torch.nn.Module. Got {type(model).__name__} instead.")
    return model


def open_dense(folder: str, weights: str | None, architecture: str | None, device: str = "cpu") -> NamedModel:
    """The dense model that a result folder was made from, with its trained weights, on a device."""
    source = _source(Path(folder), architecture)
    return open_model(str(source["model"]), weights or source["weights"], device=device)


def _open_result(folder: Path, weights: str | None, architecture: str | None) -> NamedModel:
    if weights is not None:
        raise LdrfError(f"'{folder}' is a result folder and has its own weights: leave --weights out.")
    source = _source(folder, architecture)
    return NamedModel(ldrf.load(folder, build(str(source["model"]))).eval(), source)


def _source(folder: Path, architecture: str | None) -> dict[str, str | None]:
    """The dense model that a result folder names, unless ``architecture`` does, and its weights."""
    source = dict(read_record(folder).get("source") or {})
    name = architecture or source.get("model")
    if name is None:
        raise LdrfError(f"'{folder}' does not say which model it was made from: add --architecture NAME.")
    if architecture is None and is_factory(name):
        # A folder from elsewhere must not decide which code is run here.
        raise LdrfError(f"'{folder}' was made from '{name}': to run that file, add --architecture {name}.")
    return {"model": name, "weights": source.get("weights")}


def load_weights(model: nn.Module, file: str) -> None:
    """Load a state dict from .safetensors or from a file of torch.save, of tensors only."""
    state = _read_state(Path(file).expanduser())
    own = model.state_dict()
    # Counters of BatchNorm are missing from some published files and do not matter.
    missing = [k for k in own if k not in state and not k.endswith("num_batches_tracked")]
    surplus = [k for k in state if k not in own]
    misfits = [k for k in own if k in state and own[k].shape != state[k].shape]
    problems = [
        f"{len(names)} {what} (such as '{names[0]}')"
        for what, names in (("missing", missing), ("unknown", surplus), ("of another shape", misfits))
        if names
    ]
    if problems:
        raise LdrfError(f"The weights in '{file}' do not fit {type(model).__name__}: {', '.join(problems)}.")
    model.load_state_dict(state, strict=False)


def _read_state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise LdrfError(f"No weights file '{path}'.")
    try:
        if path.suffix == ".safetensors":
            return read_safetensors(path)
        return _unwrap(read_torch(path), path)
    except (ValueError, OSError) as problem:
        kind = "safetensors file" if path.suffix == ".safetensors" else "file of torch.save"
        raise LdrfError(f"'{path}' is not a readable {kind}: {problem}.") from problem


def _unwrap(checkpoint: Any, path: Path) -> dict[str, Tensor]:
    """The state dict inside a checkpoint, without the prefix that DataParallel adds."""
    state = checkpoint
    for key in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not state or not all(isinstance(t, Tensor) for t in state.values()):
        raise LdrfError(f"'{path}' holds no state dict: a dict of tensors was expected.")
    return {str(key).removeprefix("module."): tensor for key, tensor in state.items()}
