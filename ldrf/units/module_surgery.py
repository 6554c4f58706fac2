"""Tensors cut and written into the modules of a copy: beside ``left_out.py`` the only file that changes modules."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from ldrf.tracing.interpreter import read_tensor
from ldrf.units.indices import Kept, cut_tensor, stated_sizes, surviving
from ldrf.units.unit import Unit


def cut_tensors(model: nn.Module, units: Iterable[Unit], kept: Kept) -> dict[str, Tensor]:
    """Every tensor of the model that the units shrink, by name, without the neurons that go."""
    left = surviving(units, kept)
    names = dict.fromkeys(name for name, _ in left)
    return {name: cut_tensor(read_tensor(model, name).detach(), name, left) for name in names}


def cut_plainly(model: nn.Module, units: Iterable[Unit], kept: Kept) -> None:
    """Cut units in ``model`` itself to the kept neurons and change nothing else."""
    units = tuple(units)
    write_tensors(model, cut_tensors(model, units, kept))
    write_sizes(model, stated_sizes(units, kept))


def write_sizes(model: nn.Module, sizes: Mapping[str, int]) -> None:
    """Set whole numbers that modules keep, by qualified name."""
    for name, size in sizes.items():
        path, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(path), leaf, size)


def write_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Replace parameters and buffers by name, keeping dtype, device and ``requires_grad``, and update stated sizes."""
    owners = _owners(model)
    touched: set[nn.Module] = set()
    olds = {name: read_tensor(model, name) for name in tensors}
    for name, tensor in tensors.items():
        old = olds[name]
        new = tensor.detach().to(device=old.device, dtype=old.dtype).clone(memory_format=_layout(old))
        new = nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else new
        for module, leaf in owners[id(old)]:
            setattr(module, leaf, new)
            touched.add(module)
    for module in touched:
        _state_sizes(module)


def _owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Where each tensor stands, by its id: a tied one in several modules."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for leaf, tensor in (*module._parameters.items(), *module._buffers.items()):
            owners.setdefault(id(tensor), []).append((module, leaf))
    return owners


def _layout(tensor: Tensor) -> torch.memory_format:
    """The memory format a tensor was put into: channels_last where it is that and nothing simpler."""
    for dims, layout in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.ndim == dims and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=layout):
            return layout
    return torch.contiguous_format


def _state_sizes(module: nn.Module) -> None:
    """Bring a module's own notion of its size in line with its tensors."""
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.modules.conv._ConvNd):
        out, per_group = module.weight.shape[:2]
        if module.transposed:
            module.groups = module.groups * out // module.in_channels if module.groups > 1 else 1
            module.in_channels, module.out_channels = out, per_group * module.groups
            return
        if module.groups > 1:  # they go whole
            module.groups = module.groups * out // module.out_channels
        module.out_channels, module.in_channels = out, per_group * module.groups
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        known = module.running_mean if module.running_mean is not None else weight
        if known is not None:
            module.num_features = len(known)
    elif isinstance(module, nn.PReLU) and isinstance(weight, Tensor):
        module.num_parameters = len(weight)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm) and isinstance(weight, Tensor):
        module.normalized_shape = tuple(weight.shape)
    elif isinstance(module, nn.Embedding):
        module.embedding_dim = module.weight.shape[1]
    elif isinstance(module, nn.RNNBase):
        module.input_size = module.get_parameter("weight_ih_l0").shape[1]
    elif isinstance(module, nn.GroupNorm) and isinstance(weight, Tensor):
        module.num_channels = len(weight)
