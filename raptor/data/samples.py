"""The first stage: every image is opened once, and the order of every split is written down."""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import Path

import pandas as pd

from raptor.config.data import DataConfig
from raptor.data.files import in_threads
from raptor.data.split import ImageSplit, open_split
from raptor.errors import RaptorError
from raptor.files import replacing

log = logging.getLogger(__name__)

_LOG_SECONDS = 5.0
_BATCH = 256  # images between two looks at the clock


def write_samples(*, data: DataConfig, output: Path) -> None:
    """Check all images of all splits and write `split, index, sample_id, label`, one row each.

    Nothing later starts before this has passed: a missing folder or file, a class folder with
    no images, an image that cannot be decoded, or too few images is a `RaptorError` naming it.
    Images that belong to no split are not read. Files are read on as many threads as torch may
    use, the JPEGs among them only at an eighth of their size.
    """
    splits = {name: open_split(data, name) for name in ("train", "val", "test")}
    for name, split in splits.items():
        _check_all(name, split)
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


def _check_all(name: str, split: ImageSplit) -> None:
    """Read every image; the error names the first bad one and says how many others there are."""
    bad: list[RaptorError] = []
    started = logged = time.monotonic()
    for start in range(0, len(split), _BATCH):
        batch = range(start, min(start + _BATCH, len(split)))
        bad += filter(None, in_threads(partial(_fault, split), batch))
        now = time.monotonic()
        if now - logged > _LOG_SECONDS:
            left = (now - started) * (len(split) - batch.stop) / batch.stop
            log.info("%s: %d of %d images checked, %.0f s left", name, batch.stop, len(split), left)
            logged = now
    if bad:
        others = f" (and {len(bad) - 1} more images of split {name})" if len(bad) > 1 else ""
        raise RaptorError(f"{bad[0]}{others}")
    log.info("%s: all %d images can be read", name, len(split))


def _fault(split: ImageSplit, index: int) -> RaptorError | None:
    try:
        split.check(index)
    except RaptorError as error:
        return error
    return None
