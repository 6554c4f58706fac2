"""The command line. What a command takes is in ``arguments/<name>.py``, what it does in ``<name>.py``.

Torch is imported only when a command runs: help, the version and mistakes are shown at once.
"""

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence

from ldrf._version import __version__
from ldrf.cli.arguments.base import Arguments, UsageError
from ldrf.cli.going_on import how_to_go_on
from ldrf.cli.torchrun import AlreadyPrinted, others_silent, speaks
from ldrf.errors import LdrfError, LdrfWarning
from ldrf.runtime.allocator import keep_large_blocks
from ldrf.runtime.tables import printable


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 after an error, 2 for a wrong command line, 130 after Ctrl-C.

    ``ldrf repeat`` ends in 3 where the new result differs.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        print(f"ldrf {__version__}")
        return 0
    try:
        from ldrf.cli.commands import read_command
    except ModuleNotFoundError as problem:
        return _missing(problem)
    arguments = None
    try:
        with others_silent():
            arguments = read_command(words)
        arguments.check()
        return _run(arguments)
    except SystemExit as stop:  # tyro has printed help or what is wrong
        return stop.code if isinstance(stop.code, int) else 2
    except AlreadyPrinted as problem:
        return problem.code
    except UsageError as problem:
        return _fail(str(problem), 2, speaks())
    except BrokenPipeError:  # the reader has closed the pipe, as 'head' does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LdrfError, OSError) as problem:
        return _fail(str(problem), 1)
    except KeyboardInterrupt:
        return _fail(f"interrupted{how_to_go_on(arguments)}", 130, speaks())


def _run(arguments: Arguments) -> int:
    """Import what the command needs, run it and print its report."""
    try:
        from ldrf.cli.commands import SHAREABLE
        from ldrf.cli.launch import process_group
        from ldrf.cli.output import show
        from ldrf.runtime.progress import told_in_lines

        command = importlib.import_module(f"ldrf.cli.{arguments.command}")
    except ModuleNotFoundError as problem:
        return _missing(problem)
    keep_large_blocks()
    shown = contextlib.redirect_stdout(sys.stdout if speaks() and not arguments.json else sys.stderr)
    with _plain_warnings(speaks()), shown, told_in_lines(), process_group(isinstance(arguments, SHAREABLE)):
        report = command.run(arguments)
    if speaks():
        show(report, arguments.json)
    sys.stdout.flush()
    return report.code


def _missing(problem: ModuleNotFoundError) -> int:
    return _fail(f"The command line needs {problem.name}: pip install 'ldrf[cli]'.", 1)


def _fail(message: str, code: int, shown: bool = True) -> int:
    if shown:
        print(f"error: {printable(message)}", file=sys.stderr)
    return code


@contextlib.contextmanager
def _plain_warnings(shown: bool = True) -> Iterator[None]:
    """Show ldrf's own warnings as one sentence, without the line of code they come from; or none."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def plain(message, category, *rest, **named):
            if not shown:
                return
            if issubclass(category, LdrfWarning):
                print(f"warning: {printable(str(message))}", file=sys.stderr)
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = plain
        yield
