"""``ldrf analyze``: ranks of every layer, and so the range of its width."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

import ldrf
from ldrf.cli.models import open_model
from ldrf.cli.output import Report
from ldrf.data.sources import open_data

HELP = """Show the rank of every layer (Tab. 1 of the paper): how few neurons could carry it.

For example: ldrf analyze vgg9 --data sample --energy 0.65"""


@dataclass(frozen=True)
class Analyze:
    """Arguments of ``ldrf analyze``."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str, arg(metavar="DATA")]
    """Images, for the ranks on data: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    energy: float = 0.65
    """Share of the sum of singular values that the rank keeps (Eqn. 5)."""
    search: bool = False
    """Find the energy instead: raise it until the split network, shortly tuned, is as good (Algorithm 1, stage 1)."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: int = 512
    """Images to use of the data; a search uses their labels where there are any."""
    json: bool = False
    """Print one JSON object instead of the table."""

    def run(self) -> Report:
        """Analyze the model and show the table."""
        named = open_model(self.model, self.weights, self.architecture)
        batches = open_data(self.data, "train").take(self.images)
        if not self.search:
            analysis = ldrf.analyze(named.model, batches, energy=self.energy)
            return Report(analysis.as_dict(), [str(analysis)])
        found = ldrf.find_energy(named.model, batches, labelled=None if batches.labelled else False)
        analysis = ldrf.analyze(named.model, batches, energy=found.energy)
        return Report({**analysis.as_dict(), "search": found.as_dict()}, [str(found), str(analysis)])
