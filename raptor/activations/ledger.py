"""Which shards are finished, and who writes the others.

One small record per shard, so that writers never share a file. A record outlives the manifest:
when a shard is lost, deleting the manifest and extracting again redoes that shard alone.

The writer of a shard holds a lock on a file beside the record. The system frees it with the
process, however that ends, so that a job that died can be run again.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from filelock import FileLock, Timeout

from raptor.activations.manifest import Rounding, Shard, ledger_folder
from raptor.activations.place import Place
from raptor.config.fields import Section
from raptor.errors import RaptorError
from raptor.files import digest, write_json

log = logging.getLogger(__name__)


class Entry(Section):
    """A finished shard, and the identity (teacher, data, code, grid) of the store it is part of."""

    identity: str
    shard: Shard
    rounding: Rounding


def record(manifest: Path, index: int, entry: Entry) -> None:
    """Note that shard `index` is finished; call it after the shard's file is whole."""
    content = entry.model_dump(mode="json")
    write_json(_path(manifest, index), {**content, "checksum": digest(content)})


def finished(place: Place, index: int, identity: str) -> Entry | None:
    """The record of shard `index` if it belongs to this store and its file is as it was written.

    Anything else (no record, another identity, a file missing, short or changed) is None, and
    the shard has to be written again.
    """
    record = _path(place.manifest, index)
    try:
        content = json.loads(record.read_bytes())
        if content.pop("checksum") != digest(content):
            raise ValueError("its checksum differs")
        entry = Entry.model_validate_json(json.dumps(content))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        log.warning("%s: unreadable, writing the shard again", record)
        return None
    if entry.identity != identity:
        return None
    file = entry.shard.file
    if place.size(file) != entry.shard.bytes:
        log.warning("%s: missing or of the wrong size, writing it again", place.name(file))
        return None
    if place.sha256(file) != entry.shard.sha256:
        log.warning("%s: damaged (checksum differs), writing it again", place.name(file))
        return None
    return entry


def claim(place: Place, index: int) -> FileLock:
    """The lock on shard `index`, held; whoever has it writes the shard, and releases it then.

    RaptorError where another job holds it.
    """
    lock = _lock(place.manifest, f"{index:05d}")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise RaptorError(
            f"{place}: shard {index} is being written by another job; wait until "
            "that one has ended, or stop it, and run this one again"
        ) from None
    return lock


def preparing(manifest: Path) -> FileLock:
    """The lock under which a store is made or replaced, to be waited for."""
    return _lock(manifest, "store")


def clear(manifest: Path) -> None:
    """Forget all records, as of a store that is replaced."""
    for path in ledger_folder(manifest).glob("*.json"):
        path.unlink()


def drop_claims(manifest: Path) -> None:
    """Remove the files of the locks; nobody claims a shard of a store that is finished."""
    for path in ledger_folder(manifest).glob("*.lock"):
        path.unlink()


def _lock(manifest: Path, name: str) -> FileLock:
    # One thread claims a shard, another one has written it.
    return FileLock(ledger_folder(manifest) / f"{name}.lock", thread_local=False)


def _path(manifest: Path, index: int) -> Path:
    return ledger_folder(manifest) / f"{index:05d}.json"
