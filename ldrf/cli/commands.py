"""The commands, read from the command line by tyro."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, subcommand

from ldrf.cli.arguments.analyze import Analyze
from ldrf.cli.arguments.base import Arguments
from ldrf.cli.arguments.bench import Bench
from ldrf.cli.arguments.demo import Demo
from ldrf.cli.arguments.evaluate import Evaluate
from ldrf.cli.arguments.export import Export
from ldrf.cli.arguments.finetune import Finetune
from ldrf.cli.arguments.inspect import Inspect
from ldrf.cli.arguments.prune import Prune
from ldrf.cli.arguments.repeat import Repeat
from ldrf.cli.arguments.report import WriteReport
from ldrf.cli.arguments.reproduce import Reproduce
from ldrf.cli.arguments.ship import Ship
from ldrf.cli.arguments.sweep import Sweep
from ldrf.cli.arguments.train import Train

COMMANDS: tuple[type[Arguments], ...] = (
    Demo,
    Inspect,
    Analyze,
    Prune,
    Sweep,
    Ship,
    Repeat,
    Evaluate,
    WriteReport,
    Finetune,
    Bench,
    Export,
    Reproduce,
    Train,
)
SHAREABLE = (Prune, Finetune)  # what torchrun may start in several processes

DESCRIPTION = "Prune trained neural networks, without labels and without fine-tuning. 'ldrf --version' says which ldrf."


def read_command(argv: Sequence[str]) -> Any:
    """Parse the command line; help and mistakes end in SystemExit."""
    kinds = [Annotated[kind, subcommand(kind.command, description=kind.help)] for kind in COMMANDS]
    union: Any = reduce(or_, kinds)
    return tyro.cli(
        union,
        prog="ldrf",
        description=DESCRIPTION,
        args=argv,
        config=(OmitArgPrefixes, FlagCreatePairsOff),
    )
