"""Results that a stage keeps one by one, so that it does not compute them twice."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from raptor.files import digest, replacing

log = logging.getLogger(__name__)


class Kept:
    """A JSON-able result in the file `path`, tied to `identity`: all that it follows from.

    A file of another identity, or one that does not match the digest inside it, is not used.
    """

    def __init__(self, path: Path, identity: Any) -> None:
        self.path, self.identity = path, digest(identity)

    def load(self) -> Any | None:
        """The result, or None where there is none of this identity."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["identity"] != self.identity:
                return None
            if content["digest"] == digest(content["result"]):
                log.info("%s: measured already, kept", self.path)
                return content["result"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            pass
        log.warning("%s: damaged, measured again", self.path)
        return None

    def save(self, result: Any) -> None:
        """Write `result`, whole or not at all; floats survive exactly, NaN too."""
        content = {"identity": self.identity, "digest": digest(result), "result": result}
        with replacing(self.path) as temporary:  # the order of keys is part of a result
            temporary.write_text(json.dumps(content), encoding="utf-8")
