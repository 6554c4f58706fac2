"""A network whose layers are split in two, Q and then R, at a given rank (Alg. 1, line 5)."""

import copy

from torch import nn

from ldrf.algebra.decomposition import Decomposition
from ldrf.errors import LdrfError


def decomposed_copy(model: nn.Module, parts: dict[str, Decomposition]) -> nn.Module:
    """A deep copy whose named convs [n, c, k, k] and linears [n, d] become Q to z channels, then R (Alg. 1, l. 5)."""
    copied = copy.deepcopy(model)
    for name, split in parts.items():
        path, _, leaf = name.rpartition(".")
        old, z = copied.get_submodule(name), split.rank
        # skip_init: drawing weights that are overwritten at once would move the global random state.
        if isinstance(old, nn.Linear):
            first = nn.utils.skip_init(nn.Linear, old.in_features, z, bias=False)
            second = nn.utils.skip_init(nn.Linear, z, old.out_features)
        elif isinstance(old, nn.Conv1d | nn.Conv2d | nn.Conv3d) and old.groups == 1:
            mode = {"padding_mode": old.padding_mode, "bias": False}
            geometry = (old.kernel_size, old.stride, old.padding, old.dilation)
            first = nn.utils.skip_init(type(old), old.in_channels, z, *geometry, **mode)
            second = nn.utils.skip_init(type(old), z, old.out_channels, 1)
        else:
            raise LdrfError(f"Only ungrouped convs and linears can be decomposed. '{name}' is {type(old).__name__}.")
        made = nn.Sequential(first, second).to(old.weight)
        bias = split.embedding_bias @ split.transformation + split.transformation_bias
        tensors = {"0.weight": split.embedding.T, "1.weight": split.transformation.T, "1.bias": bias}
        own = made.state_dict()
        made.load_state_dict({key: value.reshape(own[key].shape) for key, value in tensors.items()})
        setattr(copied.get_submodule(path), leaf, made.train(old.training))
    return copied
