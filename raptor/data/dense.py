"""Data for dense probes: images with a class or a depth for every pixel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from raptor.config.data import DataConfig
from raptor.config.dense import DepthProbe, ScenesConfig, SegmentationProbe, Task
from raptor.data.ade20k import ade20k
from raptor.data.nyuv2 import nyuv2
from raptor.data.pairs import IGNORE, UNMEASURED, DenseName, DenseSplit
from raptor.data.roots import existing
from raptor.data.samples import check_all
from raptor.data.scenes import open_scenes
from raptor.files import replacing

__all__ = [
    "IGNORE",
    "UNMEASURED",
    "DenseName",
    "DenseSource",
    "DenseSplit",
    "DenseTask",
    "open_dense",
    "write_pairs",
]

DenseSource = Literal["ade20k", "nyuv2"]
SPLITS: tuple[DenseName, ...] = ("train", "test")


def open_dense(config: DataConfig, source: DenseSource, split: DenseName) -> DenseSplit:
    """The official `train` or `test` split of `source`, in the folder that `config` has for it.

    Missing or damaged files are a `RaptorError`: those of the split now, a pair when it is read.
    """
    root = existing(config, source)
    return ade20k(root, split) if source == "ade20k" else nyuv2(root, split)


@dataclass(frozen=True)
class DenseTask:
    """What a dense probe is asked, and of which images."""

    data: DataConfig
    probe: SegmentationProbe | DepthProbe
    scenes: ScenesConfig | None  # where `probe` has the source `scenes`

    @classmethod
    def of(cls, name: Task, data: dict, probe: dict, scenes: dict | None) -> DenseTask:
        """From plain values."""
        kind = {"segmentation": SegmentationProbe, "depth": DepthProbe}[name]
        return cls(
            DataConfig.model_validate(data),
            kind.model_validate(probe),
            ScenesConfig.model_validate(scenes) if scenes else None,
        )

    @property
    def name(self) -> Task:
        return "segmentation" if isinstance(self.probe, SegmentationProbe) else "depth"

    def plain(self) -> dict[str, Any]:
        """What `of` takes back, as plain values."""
        sections = {"data": self.data, "probe": self.probe, "scenes": self.scenes}
        plain = {name: part and part.model_dump(mode="json") for name, part in sections.items()}
        return {"name": self.name, **plain}

    def split(self, name: DenseName) -> DenseSplit:
        """An official split, or scenes composed of digits."""
        if self.probe.source == "scenes":
            target = "classes" if self.name == "segmentation" else "depth"
            return open_scenes(self.data, self.scenes, name, target)
        return open_dense(self.data, self.probe.source, name)


def write_pairs(*, task: DenseTask, output: Path) -> None:
    """Read every pair of a task, and write `split, index, sample_id`, one row each.

    A `RaptorError` names the first pair that cannot be read, and how many others there are.
    """
    tables = []
    for name in SPLITS:
        split = task.split(name)
        check_all(name, len(split), split.pair)
        ids = {"index": range(len(split)), "sample_id": split.sample_ids}
        tables.append(pd.DataFrame({"split": name, **ids}))
    with replacing(output) as temporary:
        pd.concat(tables).to_csv(temporary, index=False, lineterminator="\n")
