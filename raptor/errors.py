"""The one exception a user is meant to read."""

from __future__ import annotations

import errno
from pathlib import Path


class RaptorError(Exception):
    """Something the user can mend; the message says what is wrong, where, and what to do."""


def first_line(error: Exception) -> str:
    """What another library says, short enough to stand in a sentence."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


_REMEDIES = {
    errno.EACCES: "give yourself permission to it, then run again",
    errno.EPERM: "give yourself permission to it, then run again",
    errno.EROFS: "put the results folder where it can be written, then run again",
    errno.EIO: "the disk fails; copy what is whole to another one and run there",
    errno.ESTALE: "the file server lost it; run again",
    errno.EMFILE: "raise the limit of open files (ulimit -n), then run again",
}


def of_system(error: OSError) -> RaptorError | None:
    """The sentence for what the operating system refuses; None where it may be our fault."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(error.filename or "the results folder")
    if error.errno not in _REMEDIES or not error.filename:
        return None
    return RaptorError(f"{error.filename}: {error.strerror}; {_REMEDIES[error.errno]}")


def disk_full(path: str | Path) -> RaptorError:
    return RaptorError(
        f"{path}: cannot be written, the disk or the quota is full; free space and run again: what "
        "is finished is kept"
    )
