"""Layers that are no conv or linear call of the traced graph: they keep their width, and are named with the reason."""

from collections.abc import Collection, Iterable, Iterator

from torch import nn
from torch.nn.utils import parametrize

from ldrf.tracing.operations import LAYER_CALLS, bound_args, operation
from ldrf.tracing.trace import Trace
from ldrf.units.unit import Skipped, Unit

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
RECURRENT = (nn.RNNBase, nn.RNNCellBase)
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
LAYERS = (*CONVOLUTIONS, *TRANSPOSED, *RECURRENT, *EMBEDDINGS, nn.Linear, nn.Bilinear)

COMPUTED = "its weight is computed from other tensors when the model runs"
OWN_TENSORS = "it reads tensors of the model, not its inputs"


def unfollowed_layers(
    model: nn.Module, trace: Trace, units: Iterable[Unit], skipped: Collection[Skipped]
) -> tuple[Skipped, ...]:
    """Every layer that is neither traced as one, nor cut along with others, nor named already."""
    tensors = {layer.weight for layer in trace.layers} | {piece.tensor for unit in units for piece in unit.slices}
    known = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if name in tensors}
    named = {layer.name for layer in skipped}
    direct = {trace.names.get(bound_args(n)["weight"].name) for n in trace.nodes if operation(n) in LAYER_CALLS}
    return tuple(
        Skipped(name, _reason(module, f"{name}.weight" in direct))
        for name, module in model.named_modules()
        if isinstance(module, LAYERS) and name not in named and not _is_known(module, known)
    )


def _is_known(module: nn.Module, known: Collection[int]) -> bool:
    """Whether one of its weights is traced or cut; those of a recurrent layer are cut for its inputs alone."""
    return not isinstance(module, RECURRENT) and any(id(p) in known for p in _weights(module))


def _weights(module: nn.Module) -> Iterator[nn.Parameter]:
    return (p for p in module.parameters() if p.ndim > 1)


def _reason(module: nn.Module, is_used_as_it_is: bool) -> str:
    if parametrize.is_parametrized(module):
        return COMPUTED
    if isinstance(module, RECURRENT):
        return "it is a recurrent layer"
    if isinstance(module, EMBEDDINGS):
        return "it is an embedding"
    if isinstance(module, TRANSPOSED) and module.groups > 1:
        return "it is a transposed convolution in groups"
    if isinstance(module, nn.Bilinear):
        return "it multiplies two inputs"
    return OWN_TENSORS if is_used_as_it_is else COMPUTED
