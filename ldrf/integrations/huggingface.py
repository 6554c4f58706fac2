"""Slim models of Hugging Face transformers on disk, as ``save_pretrained`` and ``from_pretrained`` keep dense ones.

A folder holds ``config.json`` and safetensors. Where all layers have the same widths and the class's own config can
say them, it does, and plain transformers loads the folder. Otherwise the config has one more entry, ``ldrf``, with the
shapes and numbers that differ, and :func:`from_pretrained` loads it.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ldrf.errors import LdrfError, first_line
from ldrf.saving.checkpoint import storable_tensors
from ldrf.units.left_out import leave_out, read_stand_ins, stand_ins_of
from ldrf.units.module_surgery import write_sizes, write_tensors

ENTRY = "ldrf"  # of config.json
# What configs call the width of a block's inner layer, the numbers of heads, and the width of each.
FIELDS = (
    "intermediate_size", "ffn_dim", "n_inner", "d_ff", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim",
    "num_attention_heads", "num_key_value_heads", "num_heads", "n_head", "head_dim", "d_kv",
)  # fmt: skip


def save_pretrained(slim: Any, folder: str | Path) -> bool:
    """Write a slim transformers model into ``folder``; whether plain transformers can load it from there."""
    if not hasattr(slim, "save_pretrained") or not hasattr(slim, "config"):
        raise LdrfError(f"Only models of transformers can be saved so. Got a {type(slim).__name__}: use ldrf.save.")
    folder, plain = Path(folder).expanduser(), plain_config(slim)
    if plain is not None:
        slim.save_pretrained(folder)
        plain.architectures = [type(slim).__name__]
        plain.save_pretrained(folder)
        return True
    slim.config.save_pretrained(folder)
    save_file(storable_tensors(slim), folder / "model.safetensors", {"format": "pt"})
    if getattr(slim, "generation_config", None) is not None:
        slim.generation_config.save_pretrained(folder)
    path, dense = folder / "config.json", _empty(type(slim), slim.config)
    differ = {"shapes": _other_shapes(slim, dense), "numbers": _other_numbers(slim, dense)}
    differ |= {"left_out": [asdict(stand_in) for stand_in in stand_ins_of(slim)]}
    config = {**json.loads(path.read_text()), ENTRY: {"class": type(slim).__name__, **differ}}
    path.write_text(json.dumps(config, indent=2) + "\n")
    return False


def from_pretrained(folder: str | Path, kind: type | None = None) -> Any:
    """The slim model in ``folder``, in eval mode; ``kind`` is its class, if that is not one of transformers' own."""
    import transformers

    folder = Path(folder).expanduser()
    try:
        written = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as problem:
        raise LdrfError(f"'{folder}' holds no readable config.json: {first_line(problem)}") from problem
    name = written.get(ENTRY, {}).get("class") or (written.get("architectures") or [""])[0]
    kind = kind or getattr(transformers, name, None)
    if kind is None:
        raise LdrfError(f"'{folder}' holds a {name or 'nameless model'}, which transformers lacks: pass its class.")
    if ENTRY not in written:
        return kind.from_pretrained(folder).eval()  # pyright: ignore[reportAttributeAccessIssue]
    config = kind.config_class.from_pretrained(folder)  # pyright: ignore[reportAttributeAccessIssue]
    model = kind(config)
    try:
        leave_out(model, read_stand_ins(written[ENTRY].get("left_out") or [], model))
    except ValueError as problem:
        raise LdrfError(f"'{folder}' does not fit {name}: {problem}.") from problem
    own, shapes = model.state_dict(), written[ENTRY]["shapes"]
    unknown = [tensor for tensor, shape in shapes.items() if tensor not in own or len(shape) != own[tensor].ndim]
    if unknown:
        raise LdrfError(f"'{folder}' does not fit {name}: it has no tensor '{unknown[0]}' of such a shape.")
    write_tensors(model, {n: own[n].new_zeros(shape) for n, shape in shapes.items()})
    write_sizes(model, written[ENTRY]["numbers"])
    tensors = load_file(folder / "model.safetensors")
    missing = set(model.load_state_dict(tensors, strict=False).missing_keys) - _tied(model, tensors)
    if missing:
        raise LdrfError(f"'{folder}' is incomplete: it lacks the tensor '{sorted(missing)[0]}'.")
    return model.eval()


def plain_config(slim: Any) -> Any | None:
    """A config with which the class itself makes a model that computes what the slim one does, or None."""
    inputs = _inputs(slim)
    for config in _candidates(slim):
        if inputs is not None and not _other_shapes(slim, _empty(type(slim), config)):
            made = type(slim)(copy.deepcopy(config)).to(slim.dtype).eval()
            made.load_state_dict(slim.state_dict())
            if _agree(made, slim, inputs):
                return config
    return None


def _candidates(slim: Any) -> Iterator[Any]:
    """Configs that may say the widths: by the fields as they are, with the width of a head written out, by layer."""
    config = copy.deepcopy(slim.config)
    yield from _by_fields(slim, config)
    heads, hidden = getattr(config, "num_attention_heads", 0), getattr(config, "hidden_size", 0)
    if heads and getattr(config, "head_dim", None) is None:
        stated = copy.deepcopy(config)
        stated.head_dim = hidden // heads
        yield from _by_fields(slim, stated)
    yield from _by_layer(slim, config)


def _by_layer(slim: Any, config: Any) -> Iterator[Any]:
    """The config with the fields of each layer by itself (``per_layer_config``), if the class takes them so."""
    dense = _empty(type(slim), config)
    values = _changed_sizes(slim, dense)
    for field in (f for f in FIELDS if hasattr(type(config), "per_layer_config") and hasattr(config, f)):
        by_layer: dict[int, dict[str, int]] = {}
        differ = _other_shapes(slim, dense)
        for layer, value in product(range(getattr(config, "num_hidden_layers", 0)), values):
            changed = copy.deepcopy(config)
            try:
                changed.per_layer_config = {**by_layer, layer: {field: value}}
                left = _other_shapes(slim, _empty(type(slim), changed))
            except Exception:  # most classes read one number for all layers, and say so
                continue
            if len(left) < len(differ):
                by_layer, differ = {**by_layer, layer: {field: value}}, left
                yield changed


def _by_fields(slim: Any, config: Any) -> Iterator[Any]:
    """The config, and then with one field after the other at what brings most tensors to the slim shapes."""
    yield config
    dense = _empty(type(slim), slim.config)
    differ, values = _other_shapes(slim, dense), _changed_sizes(slim, dense)
    size = getattr(config, "head_dim", None)
    values += sorted({value // size for value in values if value % size == 0} - set(values)) if size else []
    for field in (f for f in FIELDS if hasattr(config, f)):
        for value in values:
            changed = copy.deepcopy(config)
            setattr(changed, field, value)
            try:
                left = _other_shapes(slim, _empty(type(slim), changed))
            except Exception:  # such as heads that do not divide the width
                continue
            if len(left) < len(differ):
                config, differ = changed, left
        yield config


def _changed_sizes(slim: nn.Module, dense: nn.Module) -> list[int]:
    """Sizes of tensors and numbers of modules that are others in the slim model."""
    own = dense.state_dict()
    pairs = [(shape, own[name].shape) for name, shape in _other_shapes(slim, dense).items()]
    sizes = {now for shape, before in pairs for now, then in zip(shape, before, strict=True) if now != then}
    return sorted(sizes | set(_other_numbers(slim, dense).values()))


def _inputs(slim: Any) -> dict[str, Tensor] | None:
    """Inputs that the model takes: words or pictures, or None where it takes something else."""
    name, config = slim.main_input_name, slim.config
    chance = torch.Generator().manual_seed(0)
    if name == "input_ids" and not getattr(config, "is_encoder_decoder", False):
        return {name: torch.randint(0, config.vocab_size, (2, 8), generator=chance)}
    size = getattr(config, "image_size", None)
    if name == "pixel_values" and isinstance(size, int):
        return {name: torch.randn(2, getattr(config, "num_channels", 3), size, size, generator=chance).to(slim.dtype)}
    return None


@torch.no_grad()
def _agree(made: Any, slim: Any, inputs: dict[str, Tensor]) -> bool:
    """Whether both models, in eval mode, give the same first output."""
    training = slim.training
    there = {name: tensor.to(slim.device) for name, tensor in inputs.items()}
    try:
        one, other = made.to(slim.device)(**there)[0], slim.eval()(**there)[0]
    finally:
        slim.train(training)
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), rtol=1e-3, atol=1e-4)


def _empty(kind: Any, config: Any) -> nn.Module:
    """A model of this class without data."""
    with torch.device("meta"):
        return kind(copy.deepcopy(config))


def _other_shapes(slim: nn.Module, dense: nn.Module) -> dict[str, list[int]]:
    """Shapes of the slim tensors that are not those of ``dense``."""
    own: dict[str, Tensor] = dense.state_dict()
    return {n: list(t.shape) for n, t in slim.state_dict().items() if n not in own or own[n].shape != t.shape}


def _other_numbers(slim: nn.Module, dense: nn.Module) -> dict[str, int]:
    """Whole numbers that the slim model's modules keep and that are others in ``dense``."""
    modules = dict(dense.named_modules())
    return {
        f"{path}.{name}".lstrip("."): value
        for path, module in slim.named_modules()
        for name, value in vars(module).items()
        if type(value) is int and path in modules and vars(modules[path]).get(name) != value
    }


def _tied(model: nn.Module, given: dict[str, Tensor]) -> set[str]:
    """Names of tensors that are the very same as one that was given."""
    state = model.state_dict()
    known = {state[name].data_ptr() for name in given if name in state}
    return {name for name, tensor in state.items() if tensor.data_ptr() in known}
