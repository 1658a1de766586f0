"""MATLAB files up to version 7; those of 7.3 are HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raptor.errors import RaptorError, first_line


def read_mat(path: Path, *names: str) -> list[Any]:
    """The variables `names` of `path`, without axes of length 1; RaptorError if they are not there.

    scipy reads arrays, text and structs, and runs nothing that is in the file.
    """
    from scipy.io import loadmat

    if not path.is_file():
        raise RaptorError(f"{path}: no such file; unpack the original there")
    try:
        content = loadmat(path, variable_names=names, squeeze_me=True)
    except Exception as error:  # scipy raises whatever its parser stumbles on
        raise RaptorError(
            f"{path}: cannot be read as a MATLAB file ({first_line(error)}); download it again"
        ) from None
    absent = [name for name in names if name not in content]
    if absent:
        raise RaptorError(f"{path}: has no variable {absent[0]}; replace it with the original")
    return [content[name] for name in names]
