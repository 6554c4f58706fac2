"""The one exception type: every message says what was expected, what came, where, and what to do."""


class LdrfError(Exception):
    """Raised for every problem a user can cause or mend; its text is one plain sentence."""


class LdrfWarning(UserWarning):
    """Issued when the work goes on but the user should know something."""
