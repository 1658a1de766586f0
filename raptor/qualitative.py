"""Qualitative results of dense probes: a few images, their truth, and what two models say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from raptor.errors import RaptorError
from raptor.files import replacing

NO_CLASS = -1  # of a pixel whose class is not known; a depth that is not known is NaN


class Example(NamedTuple):
    """One image (H, W, 3) uint8 with maps (H, W): int16 classes, or float32 metres."""

    image: np.ndarray
    truth: np.ndarray
    teacher: np.ndarray
    raptor: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Where there is a truth, (H, W) bool."""
        return np.isfinite(self.truth) & (self.truth != NO_CLASS)


def agreement(example: Example, model: str) -> float:
    """Of a model with the truth: the share of classes that are right, or the RMSE in metres.

    Over the pixels whose truth is known; NaN without any.
    """
    found, truth = getattr(example, model)[example.known], example.truth[example.known]
    if not len(truth):
        return float("nan")
    if np.issubdtype(truth.dtype, np.integer):
        return float(np.mean(found == truth))
    return float(np.sqrt(np.mean((found - truth).astype(float) ** 2)))


@dataclass(frozen=True)
class Examples:
    """Examples with their names; `class_names` is empty where the maps are of depth.

    `model` says which Raptor it is: `teacher`, `recipe`, `partition`, `k` and `seed`.
    """

    sample_ids: Sequence[str]
    examples: Sequence[Example]
    class_names: Sequence[str]
    model: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def classes_by_area(self) -> list[int]:
        """The classes that are in some map, true or said, those of most pixels first."""
        maps = [classes_HW for example in self.examples for classes_HW in example[1:]]
        pixels = np.concatenate([classes_HW.ravel() for classes_HW in maps])
        found, counts = np.unique(pixels[pixels != NO_CLASS], return_counts=True)
        return found[np.argsort(-counts, kind="stable")].tolist()

    def save(self, path: Path) -> None:
        """Write the `.npz` `path`, whole or not at all."""
        arrays = {
            f"{name}_{index}": array
            for index, example in enumerate(self.examples)
            for name, array in example._asdict().items()
        }
        names = {"sample_ids": self.sample_ids, "class_names": self.class_names}
        arrays |= {name: np.array(list(values), dtype=np.str_) for name, values in names.items()}
        arrays["model"] = np.array(json.dumps(dict(self.model)), dtype=np.str_)
        # numpy would add .npz to the temporary name.
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Examples:
        """What `save` wrote; RaptorError for a file that is something else."""
        try:
            with np.load(path, allow_pickle=False) as file:
                sample_ids = file["sample_ids"].tolist()
                examples = [
                    Example(*(file[f"{name}_{index}"] for name in Example._fields))
                    for index in range(len(sample_ids))
                ]
                model = json.loads(file["model"].item())
                return cls(sample_ids, examples, file["class_names"].tolist(), model)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise RaptorError(
                f"{path}: not the examples of a dense probe ({error}); delete it and run again"
            ) from None
