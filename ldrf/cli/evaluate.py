"""``ldrf evaluate``: accuracy and cost of a model."""

from dataclasses import asdict, dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from ldrf.cli.models import open_model
from ldrf.cli.output import Report, facts
from ldrf.data.sources import open_data
from ldrf.inputs import read_inputs
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.tracing.counting import count_macs, count_parameters

HELP = """Measure top-1 and top-5 accuracy, MACs and parameters of a model.

For example: ldrf evaluate runs/demo --data sample"""


@dataclass(frozen=True)
class Evaluate:
    """Arguments of ``ldrf evaluate``."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """vgg9, resnet20, resnet56, torchvision:NAME, timm:NAME, file.py:factory, or a result folder."""
    data: Annotated[str, arg(metavar="DATA")]
    """Labelled images: sample, cifar10:folder, imagefolder:folder, or file.py:factory."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the model, .safetensors or .pth."""
    architecture: Annotated[str | None, arg(metavar="MODEL")] = None
    """The dense model of a result folder that does not name it."""
    images: Annotated[int | None, arg(metavar="INT")] = None
    """Images to evaluate on, all of them by default."""
    json: bool = False
    """Print one JSON object instead of the table."""

    def run(self) -> Report:
        """Evaluate the model on the data's test images."""
        model = open_model(self.model, self.weights, self.architecture).model
        batches = open_data(self.data, "test").take(self.images)
        accuracy = measure_accuracy(model, batches)
        macs = count_macs(model, read_inputs(model, next(iter(batches))))
        data = {"model": self.model, **asdict(accuracy), "macs": macs, "parameters": count_parameters(model)}
        rows = {
            "top-1": f"{accuracy.top1:.2f} %",
            "top-5": f"{accuracy.top5:.2f} %",
            "images": f"{accuracy.images:,}",
            "MACs": f"{macs:,}",
            "parameters": f"{data['parameters']:,}",
        }
        return Report(data, [facts(rows)])
