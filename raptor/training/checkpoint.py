"""Training state on disk: written whole, tied to what it belongs to, never trusted blindly."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from raptor.files import plain_path, replacing, sha256, write_json
from raptor.weights import why_unreadable

log = logging.getLogger(__name__)


class Checkpoint:
    """The latest training state in a folder.

    `state.json` is written last and names the state file, its checksum and the identity
    (digest of parameters, code and inputs) of the training it belongs to. A state of another
    identity, or one that is damaged, is not used: training starts over and the log says so.
    """

    def __init__(self, folder: str | Path, identity: str) -> None:
        self.folder = Path(folder)
        self.identity = identity

    def load(self) -> dict[str, Any] | None:
        """The saved state, or None where there is none that belongs to this training."""
        try:
            index = json.loads((self.folder / "state.json").read_text())
            path = self.folder / plain_path(index["file"])
            if index["identity"] != self.identity:
                log.info("%s: left by a different training, starting anew", self.folder)
                return None
            if sha256(path) != index["sha256"]:
                log.warning("%s: damaged (checksum differs), starting anew", path)
                return None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, IsADirectoryError):
            log.warning("%s: unreadable index, starting anew", self.folder / "state.json")
            return None
        try:
            return torch.load(path, weights_only=True, map_location="cpu")
        except (RuntimeError, UnpicklingError) as error:
            log.warning("%s: cannot be used (%s), starting anew", path, why_unreadable(error))
            return None

    def save(self, state: dict[str, Any], step: int) -> None:
        """Write the state of `step`, then remove the one before."""
        path = self.folder / f"state-{step:08d}.pt"
        with replacing(path) as temporary:
            torch.save(state, temporary)
        index = {"file": path.name, "identity": self.identity, "sha256": sha256(path)}
        write_json(self.folder / "state.json", index)
        for old in self.folder.glob("state-*.pt"):
            if old != path:
                old.unlink()
