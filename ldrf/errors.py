"""The one exception type: every message says what was expected, what came, where, and what to do."""


class LdrfError(Exception):
    """Raised for every problem a user can cause or fix; its text is one plain sentence."""


class OutOfReach(LdrfError):
    """Raised where no widths reach the target."""


class CannotTrace(LdrfError):
    """Raised where torch.export cannot follow a model's code."""


class LdrfWarning(UserWarning):
    """Issued when the work goes on but the user should know something."""


def first_line(problem: BaseException) -> str:
    """The first line of what an exception says, or its type where it says nothing."""
    lines = str(problem).strip().splitlines()
    return lines[0].rstrip() if lines else type(problem).__name__
