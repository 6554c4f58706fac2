"""The commands, read from the command line by tyro."""

from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, subcommand

from ldrf.cli import analyze, bench, demo, evaluate, export, finetune, inspect, prune, repeat, report, reproduce, train
from ldrf.cli.analyze import Analyze
from ldrf.cli.bench import BenchCommand
from ldrf.cli.demo import Demo
from ldrf.cli.evaluate import Evaluate
from ldrf.cli.export import Export
from ldrf.cli.finetune import Finetune
from ldrf.cli.inspect import Inspect
from ldrf.cli.prune import Prune
from ldrf.cli.repeat import Repeat
from ldrf.cli.report import WriteReport
from ldrf.cli.reproduce import Reproduce
from ldrf.cli.train import Train

Command = (
    Annotated[Demo, subcommand("demo", description=demo.HELP)]
    | Annotated[Inspect, subcommand("inspect", description=inspect.HELP)]
    | Annotated[Analyze, subcommand("analyze", description=analyze.HELP)]
    | Annotated[Prune, subcommand("prune", description=prune.HELP)]
    | Annotated[Repeat, subcommand("repeat", description=repeat.HELP)]
    | Annotated[Evaluate, subcommand("evaluate", description=evaluate.HELP)]
    | Annotated[WriteReport, subcommand("report", description=report.HELP)]
    | Annotated[Finetune, subcommand("finetune", description=finetune.HELP)]
    | Annotated[BenchCommand, subcommand("bench", description=bench.HELP)]
    | Annotated[Export, subcommand("export", description=export.HELP)]
    | Annotated[Reproduce, subcommand("reproduce", description=reproduce.HELP)]
    | Annotated[Train, subcommand("train", description=train.HELP)]
)

SHAREABLE = (Prune, Finetune)  # what torchrun may start in several processes


def read_command(argv: Sequence[str] | None) -> Any:
    """Parse the command line; help and mistakes end in SystemExit."""
    return tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="ldrf",
        description="Prune trained neural networks, without labels and without fine-tuning.",
        args=argv,
        config=(OmitArgPrefixes, FlagCreatePairsOff),
    )
