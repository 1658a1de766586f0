"""The folder of a source, and that it is there."""

from __future__ import annotations

from pathlib import Path

from raptor.config.data import FOLDERS, DataConfig, FileSource
from raptor.errors import RaptorError


def existing(config: DataConfig, source: FileSource) -> Path:
    """The folder that `config` gives for `source`; RaptorError where there is none."""
    folder = config.folder(source)
    if not folder.is_dir():
        elsewhere = FOLDERS.get(source)
        hint = f", or in RAPTOR_DATA the folder that holds {elsewhere}/" if elsewhere else ""
        raise RaptorError(
            f"data.root: folder {folder} does not exist; give the one of {source} there{hint}"
        )
    return folder
