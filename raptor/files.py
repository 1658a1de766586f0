"""Files that are either whole or absent, and their checksums."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raptor.errors import RaptorError, disk_full

LONGEST = 200  # bytes in a name
LITTLE_BYTES = 2**20  # a write that fails where less is free has failed for that


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`; on success it is flushed to disk and renamed to `path`.

    A full disk is a RaptorError, whatever the library that wrote makes of it. What writers of this
    path that were killed have left is removed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with room_for(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_unfinished(path)
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """A failure to write `path` on a full disk becomes a RaptorError that says so."""
    try:
        yield
    except RaptorError:
        raise
    except Exception as error:
        if _is_full(error, path):
            raise disk_full(path) from error
        raise


def _is_full(error: Exception, path: Path) -> bool:
    """torch speaks of an unexpected position, safetensors quotes the system, others pass it on."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    said = str(error)
    if any(os.strerror(number) in said for number in (errno.ENOSPC, errno.EDQUOT)):
        return True
    try:
        return shutil.disk_usage(path.parent).free < LITTLE_BYTES
    except OSError:
        return False


def _remove_unfinished(path: Path) -> None:
    """Remove the temporary paths of `path` whose processes have ended."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        writer = left.name.split(".")[-2]
        try:
            os.kill(int(writer), 0)  # no signal: only whether it could be sent
        except ProcessLookupError:
            left.unlink(missing_ok=True)
        except (PermissionError, ValueError):  # somebody else's, and at work; or no file of ours
            pass


# Control characters, line breaks, and what stands for bytes that are no text.
_NO_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether it is text without control characters and line breaks, as names are."""
    return not _NO_NAME.search(text)


def plain_path(text: str) -> str:
    """`text`, a relative path that stays below its folder; ValueError for any other.

    Refused: absolute paths, `.` and `..`, control characters, a part of more than 200 bytes
    (names get suffixes, and file systems end at 255).
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no path")
    parts = text.split("/")
    if not all(part and part.strip(".") for part in parts):
        raise ValueError(f"{text!r} is not a path below its folder")
    if not is_name(text):
        raise ValueError(f"{text!r} holds control characters")
    if any(len(part.encode()) > LONGEST for part in parts):
        raise ValueError(f"{text[:40]!r}… is a name of more than {LONGEST} bytes")
    return text


def write_json(path: str | Path, value: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def sha256(path: str | Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """16 hex digits of a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
