"""``ldrf analyze``: the rank of every layer, and so the range of its width."""

import ldrf
from ldrf.cli.arguments.analyze import Analyze
from ldrf.cli.models import open_model
from ldrf.cli.output import Report
from ldrf.data.sources import open_data


def run(arguments: Analyze) -> Report:
    """Analyze the model and show the table."""
    named = open_model(arguments.model, arguments.weights, arguments.architecture, arguments.device)
    batches = open_data(arguments.data, "train").take(arguments.images)
    if not arguments.search:
        analysis = ldrf.analyze(named.model, batches, energy=arguments.energy)
        return Report(analysis.as_dict(), [str(analysis)])
    search = ldrf.find_energy(named.model, batches, labelled=None if batches.labelled else False)
    analysis = ldrf.analyze(named.model, batches, energy=search.energy)
    return Report({**analysis.as_dict(), "search": search.as_dict()}, [str(search), str(analysis)])
