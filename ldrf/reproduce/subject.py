"""What a recipe is run on: a dense network, images to calibrate on and images to evaluate on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from ldrf.data.cifar10 import LabelledImages, Split
from ldrf.data.sources import Batches
from ldrf.files.checksums import state_checksum, tensor_bytes
from ldrf.inputs import Inputs, read_inputs
from ldrf.tracing.counting import count_macs


@dataclass(frozen=True)
class Subject:
    """A trained network with its images; ``labelled`` gives CIFAR-style arrays where fine-tuning wants them."""

    model: nn.Module
    train: Batches
    test: Batches
    labelled: Callable[[Split], LabelledImages]

    def digest(self) -> str:
        """A hash of all weights, of the first images of both sets and of how many batches there are."""
        parts: list[bytes | memoryview] = []
        for batches in (self.train, self.test):
            for tensor in read_inputs(self.model, next(iter(batches))).tensors():
                parts += [str(tuple(tensor.shape)).encode(), tensor_bytes(tensor)]
            parts.append(str(len(getattr(batches, "rows", ()))).encode())
        return state_checksum(self.model.state_dict(), parts)[:20]

    def example(self, images: int) -> Inputs:
        """The first ``images`` test images as the network takes them."""
        return read_inputs(self.model, next(iter(self.test))).map(lambda t: t[:images])

    @cached_property
    def macs(self) -> int:
        """MACs of the dense network per example, which every cell compares with."""
        return count_macs(self.model, self.example(1))
