"""``ldrf bench``: how much faster the slim model really is, and where the rest is lost."""

from ldrf.cli.arguments.bench import Bench
from ldrf.cli.images import open_example
from ldrf.cli.models import build, open_model
from ldrf.cli.output import Report
from ldrf.measuring.bench import bench


def run(arguments: Bench) -> Report:
    """Measure and show the tables."""
    cases = arguments.cases()
    named = open_model(arguments.model, architecture=arguments.architecture, device=arguments.device)
    dense = open_model(arguments.against).model if arguments.against else build(str(named.source["model"]))
    example = open_example(arguments.model, named.model, arguments.data, max(cases["batches"]))
    timings = bench(dense, named.model, example, **cases, seconds=arguments.seconds)
    against = arguments.against or named.source["model"]
    return Report({"model": arguments.model, "against": against, **timings.as_dict()}, [str(timings)])
