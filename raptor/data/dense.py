"""Data for dense probes: images with a class (ADE20K) or a depth (NYUv2) for every pixel."""

from __future__ import annotations

from typing import Literal

from raptor.config.data import DataConfig
from raptor.data.ade20k import ade20k
from raptor.data.nyuv2 import nyuv2
from raptor.data.pairs import IGNORE, UNMEASURED, DenseName, DenseSplit
from raptor.data.roots import existing

__all__ = ["IGNORE", "UNMEASURED", "DenseName", "DenseSource", "DenseSplit", "open_dense"]

DenseSource = Literal["ade20k", "nyuv2"]


def open_dense(config: DataConfig, source: DenseSource, split: DenseName) -> DenseSplit:
    """The official `train` or `test` split of `source`, in the folder that `config` has for it.

    Missing or damaged files are a `RaptorError`: those of the split now, a pair when it is read.
    """
    root = existing(config, source)
    return ade20k(root, split) if source == "ade20k" else nyuv2(root, split)
