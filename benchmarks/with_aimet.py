"""AIMET 2.42's channel pruning (after He et al. 2017) at the widths of ldrf: ``pip install 'ldrf[aimet]'``.

It ranks the input channels of a convolution by magnitude and fits the kept ones to the dense output, layer after layer.
Channels that no convolution reads, as those before a linear layer, it cannot cut.
"""

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ldrf
from ldrf.calibration.network import read_network
from ldrf.cli.vision import import_vision
from ldrf.inputs import read_inputs

SAMPLES = 10  # positions of every image, as many as AIMET takes by itself


def prune_with_aimet(model: nn.Module, batches: Sequence[Any], widths: Mapping[str, int]) -> nn.Module:
    """A slim copy in which every unit that a single convolution reads has the width asked for."""
    images = torch.cat([read_inputs(model, batch).args[0] for batch in batches])
    ratios = input_ratios(model, batches, widths)
    import_vision("torchvision")
    with _quietly():
        from aimet_torch.common.defs import CompressionScheme, CostMetric  # pyright: ignore[reportMissingImports]
        from aimet_torch.compress import ModelCompressor  # pyright: ignore[reportMissingImports]
        from aimet_torch.defs import ChannelPruningParameters, ModuleCompRatioPair  # pyright: ignore
        from aimet_torch.model_preparer import prepare_model  # pyright: ignore[reportMissingImports]

        prepared = prepare_model(copy.deepcopy(model).eval())  # it follows modules alone, so functions become some
        pairs = [ModuleCompRatioPair(prepared.get_submodule(name), ratio) for name, ratio in ratios.items()]
        parameters = ChannelPruningParameters(
            data_loader=DataLoader(TensorDataset(images, torch.zeros(len(images))), batch_size=50),  # pyright: ignore
            num_reconstruction_samples=SAMPLES * len(images),
            allow_custom_downsample_ops=False,
            mode=ChannelPruningParameters.Mode.manual,
            params=ChannelPruningParameters.ManualModeParams(pairs),
        )
        slim, _ = ModelCompressor.compress_model(
            prepared,
            eval_callback=lambda *_: 0.0,  # of use only where AIMET searches for ratios
            eval_iterations=1,
            input_shape=(1, *images.shape[1:]),
            compress_scheme=CompressionScheme.channel_pruning,
            cost_metric=CostMetric.mac,
            parameters=parameters,
        )
    return slim.eval()


def input_ratios(model: nn.Module, batches: Sequence[Any], widths: Mapping[str, int]) -> dict[str, float]:
    """By convolution: the share of its inputs that stays, where it alone reads a unit that is cut, and nothing else."""
    found = {}
    for unit in read_network(model, batches[:1], (), ldrf.PruneConfig()).units:
        width = widths.get(unit.name, unit.width)
        readers = [c.layer for c in unit.consumers if c.layer.groups == 1 and c.layer.inputs == unit.width]
        alone = len(readers) == len(unit.consumers) == 1 and isinstance(model.get_submodule(readers[0].name), nn.Conv2d)
        if width < unit.width and alone:
            found[readers[0].name] = (width + 0.5) / unit.width  # of which AIMET takes the whole number below
    if not found:
        raise ldrf.LdrfError("AIMET cuts what a single convolution reads, and these widths have nothing of the kind.")
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """Without its log, its warnings and the files it leaves; the positions it looks at come from numpy's own state."""
    state, level = np.random.get_state(), logging.root.manager.disable
    np.random.seed(0)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, chdir(folder):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        np.random.set_state(state)
