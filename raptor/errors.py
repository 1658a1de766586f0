"""The one exception a user is meant to read."""


class RaptorError(Exception):
    """Something the user can mend; the message says what is wrong, where, and what to do."""
