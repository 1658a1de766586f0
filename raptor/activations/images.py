"""The images whose states a manifest describes."""

from __future__ import annotations

import json
from pathlib import Path

from raptor.activations.manifest import Manifest
from raptor.config.data import DataConfig
from raptor.data.split import ImageSplit, open_split
from raptor.errors import RaptorError


def images_of(manifest: Manifest, path: Path, split: str) -> ImageSplit:
    """A split of the images that the manifest in `path` is about.

    RaptorError where `data.root` holds others by now.
    """
    first, last = manifest.splits[split]
    images = open_split(DataConfig.model_validate_json(json.dumps(manifest.data)), split)
    if images.sample_ids != manifest.sample_ids[first:last]:
        raise RaptorError(
            f"{path}: its images of split {split} are not those of data.root any more; put them "
            f"back as they were, or remove {path.parent.parent} and run again, as all splits are "
            "drawn anew from what is there"
        )
    return images
