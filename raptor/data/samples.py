"""The first stage: every image is opened once, and the order of every split is written down."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pandas as pd

from raptor.config.data import DataConfig
from raptor.data.split import ImageSplit, open_split
from raptor.errors import RaptorError
from raptor.files import replacing

log = logging.getLogger(__name__)

_LOG_SECONDS = 5.0
_BATCH = 64


def write_samples(*, data: DataConfig, output: Path) -> None:
    """Check all images of all splits and write `split, index, sample_id, label`, one row each.

    Nothing later starts before this has passed: a missing folder or file, a class folder with
    no images, an image that cannot be decoded, or too few images is a `RaptorError` naming it.
    """
    splits = {name: open_split(data, name) for name in ("train", "val", "test")}
    for name, split in splits.items():
        _decode_all(name, split)
    rows = pd.concat(
        pd.DataFrame(
            {
                "split": name,
                "index": range(len(split)),
                "sample_id": split.sample_ids,
                "label": split.labels,
            }
        )
        for name, split in splits.items()
    )
    with replacing(output) as temporary:
        rows.to_csv(temporary, index=False, lineterminator="\n")


def _decode_all(name: str, split: ImageSplit) -> None:
    """Read every image; the error names the first bad one and says how many others there are."""
    bad: list[RaptorError] = []
    logged = time.monotonic()
    for start in range(0, len(split), _BATCH):
        batch = range(start, min(start + _BATCH, len(split)))
        try:
            split.images(batch)
        except RaptorError:
            bad += [fault for index in batch if (fault := _fault(split, index))]
        if time.monotonic() - logged > _LOG_SECONDS:
            log.info("%s: %d of %d images checked", name, batch.stop, len(split))
            logged = time.monotonic()
    if bad:
        others = f" (and {len(bad) - 1} more images of split {name})" if len(bad) > 1 else ""
        raise RaptorError(f"{bad[0]}{others}")
    log.info("%s: all %d images can be read", name, len(split))


def _fault(split: ImageSplit, index: int) -> RaptorError | None:
    try:
        split.images([index])
    except RaptorError as error:
        return error
    return None
