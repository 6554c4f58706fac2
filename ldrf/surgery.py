"""Tensors cut and written into the modules of a copy: the only file that changes modules."""

import torch
from torch import Tensor, nn

from ldrf.channel_flow import layer_tensors
from ldrf.tracing import read_tensor
from ldrf.units import Unit


def cut_carriers(model: nn.Module, unit: Unit, kept: Tensor) -> dict[str, Tensor]:
    """Per-channel tensors between producer and consumers, cut to the kept neurons."""
    found = {}
    for piece in unit.slices:
        index = torch.isin(torch.as_tensor(piece.ids), kept).nonzero().flatten()
        found[piece.tensor] = read_tensor(model, piece.tensor).detach().index_select(piece.dim, index)
    return found


def cut_plainly(model: nn.Module, unit: Unit, kept: Tensor) -> None:
    """Cut a unit in ``model`` itself to the kept neurons and change nothing else."""
    tensors = cut_carriers(model, unit, kept)
    for name in layer_tensors(unit.producer):
        tensors[name] = read_tensor(model, name).detach().index_select(0, kept)
    for consumer in unit.consumers:
        index = torch.isin(torch.as_tensor(consumer.channels), kept).nonzero().flatten()
        weight = tensors.get(consumer.layer.weight, read_tensor(model, consumer.layer.weight).detach())
        tensors[consumer.layer.weight] = weight.index_select(1, index)
    write_tensors(model, tensors)


def write_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Replace parameters and buffers by name, keeping dtype, device and ``requires_grad``, and update stated sizes."""
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        old = getattr(module, leaf)
        new = tensor.detach().to(device=old.device, dtype=old.dtype).clone(memory_format=_layout(old))
        if isinstance(old, nn.Parameter):
            setattr(module, leaf, nn.Parameter(new, requires_grad=old.requires_grad))
        else:
            setattr(module, leaf, new)
    for path in {name.rpartition(".")[0] for name in tensors}:
        _state_sizes(model.get_submodule(path))


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
        if module.groups > 1 and module.groups == module.out_channels:
            module.groups = out
        module.out_channels, module.in_channels = out, per_group * module.groups
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        if module.running_mean is not None:
            module.num_features = len(module.running_mean)
    elif isinstance(module, nn.PReLU) and isinstance(weight, Tensor):
        module.num_parameters = len(weight)
