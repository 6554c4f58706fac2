"""The commands, read from the command line by tyro."""

from collections.abc import Sequence
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, subcommand

from ldrf.cli import analyze, demo, evaluate, prune, report, reproduce, train
from ldrf.cli.analyze import Analyze
from ldrf.cli.demo import Demo
from ldrf.cli.evaluate import Evaluate
from ldrf.cli.prune import Prune
from ldrf.cli.report import WriteReport
from ldrf.cli.reproduce import Reproduce
from ldrf.cli.train import Train

Command = (
    Annotated[Demo, subcommand("demo", description=demo.HELP)]
    | Annotated[Analyze, subcommand("analyze", description=analyze.HELP)]
    | Annotated[Prune, subcommand("prune", description=prune.HELP)]
    | Annotated[Evaluate, subcommand("evaluate", description=evaluate.HELP)]
    | Annotated[WriteReport, subcommand("report", description=report.HELP)]
    | Annotated[Reproduce, subcommand("reproduce", description=reproduce.HELP)]
    | Annotated[Train, subcommand("train", description=train.HELP)]
)


def read_command(
    argv: Sequence[str] | None,
) -> Demo | Analyze | Prune | Evaluate | WriteReport | Reproduce | Train:
    """Parse the command line; help and mistakes end in SystemExit."""
    return tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="ldrf",
        description="Prune trained neural networks, without labels and without fine-tuning.",
        args=argv,
        config=(OmitArgPrefixes, FlagCreatePairsOff),
    )
