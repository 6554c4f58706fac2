"""``ldrf evaluate``: accuracy and cost of a model."""

from dataclasses import asdict

from ldrf.cli.arguments.evaluate import Evaluate
from ldrf.cli.models import open_model
from ldrf.cli.output import Report, facts
from ldrf.data.sources import open_data
from ldrf.inputs import read_inputs
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.tracing.counting import count_macs, count_parameters


def run(arguments: Evaluate) -> Report:
    """Evaluate the model on the data's test images."""
    model = open_model(arguments.model, arguments.weights, arguments.architecture, arguments.device).model
    batches = open_data(arguments.data, "test").take(arguments.images)
    accuracy = measure_accuracy(model, batches)
    macs = count_macs(model, read_inputs(model, next(iter(batches))))
    data = {"model": arguments.model, **asdict(accuracy), "macs": macs, "parameters": count_parameters(model)}
    rows = {
        "top-1": f"{accuracy.top1:.2f} %",
        "top-5": f"{accuracy.top5:.2f} %",
        "images": f"{accuracy.images:,}",
        "MACs": f"{macs:,}",
        "parameters": f"{data['parameters']:,}",
    }
    return Report(data, [facts(rows)])
