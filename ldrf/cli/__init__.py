"""The command line: a file for each command."""

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence

from ldrf.errors import LdrfError, LdrfWarning
from ldrf.runtime.allocator import keep_large_blocks
from ldrf.runtime.tables import printable


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 after an error, 2 for a wrong command line, 130 after Ctrl-C.

    ``ldrf repeat`` ends in 3 where what it made differs.
    """
    try:
        from ldrf.cli.commands import SHAREABLE, read_command
        from ldrf.cli.launch import Told, others_silent, process_group, speaks
        from ldrf.cli.output import UsageError, show
    except ModuleNotFoundError as problem:
        return _fail(f"The command line needs {problem.name}: pip install 'ldrf[cli]'.", 1)
    try:
        with others_silent():
            command = read_command(argv)
        keep_large_blocks()
        shown = contextlib.redirect_stdout(sys.stdout if speaks() and not command.json else sys.stderr)
        with _plain_warnings(speaks()), shown, process_group(isinstance(command, SHAREABLE)):
            report = command.run()
        if speaks():
            show(report, command.json)
        sys.stdout.flush()
        return report.code
    except SystemExit as stop:  # tyro has printed help or what is wrong
        return stop.code if isinstance(stop.code, int) else 2
    except Told as told:
        return told.code
    except UsageError as problem:
        return _fail(str(problem), 2, speaks())
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LdrfError, OSError) as problem:
        return _fail(str(problem), 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, speaks())


def _fail(message: str, code: int, shown: bool = True) -> int:
    if shown:
        print(f"error: {printable(message)}", file=sys.stderr)
    return code


@contextlib.contextmanager
def _plain_warnings(shown: bool = True):
    """Show our own warnings as one sentence, without the line of code they come from; or none."""
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
