"""The one exception a user is meant to read."""


class RaptorError(Exception):
    """Something the user can mend; the message says what is wrong, where, and what to do."""


def first_line(error: Exception) -> str:
    """What another library says, short enough to stand in a sentence."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
