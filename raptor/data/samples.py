"""The first stage: every image is opened once, and the order of every split is written down."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
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
        check_all(name, len(split), split.check)
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


def refuse_redrawn(splits: Mapping[str, ImageSplit], samples: Path) -> None:
    """RaptorError where images have come or gone since `write_samples` wrote `samples`."""
    table = pd.read_csv(samples, dtype=str, keep_default_na=False)
    written = table.groupby("split", sort=False)["sample_id"].agg(list).to_dict()
    for name, split in splits.items():
        if split.sample_ids != written.get(name):
            raise RaptorError(
                f"{samples}: its images of split {name} are not those of data.root any more; put "
                f"them back as they were, or remove {samples.parent.parent} and run again, as all "
                "splits are drawn anew from what is there"
            )


def check_all(name: str, images: int, check: Callable[[int], object]) -> None:
    """Call `check` with each index; the error is that of the first bad one, with their number."""
    bad: list[RaptorError] = []
    started = logged = time.monotonic()
    for start in range(0, images, _BATCH):
        batch = range(start, min(start + _BATCH, images))
        bad += filter(None, in_threads(partial(_fault, check), batch))
        now = time.monotonic()
        if now - logged > _LOG_SECONDS:
            left = (now - started) * (images - batch.stop) / batch.stop
            log.info("%s: %d of %d images checked, %.0f s left", name, batch.stop, images, left)
            logged = now
    if bad:
        others = f" (and {len(bad) - 1} more images of split {name})" if len(bad) > 1 else ""
        raise RaptorError(f"{bad[0]}{others}")
    log.info("%s: all %d images can be read", name, images)


def _fault(check: Callable[[int], object], index: int) -> RaptorError | None:
    try:
        check(index)
    except RaptorError as error:
        return error
    return None
