"""One pass over a split of stored states: what a probe needs of it, in bounded memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from raptor.activations.images import images_of
from raptor.activations.read import Activations
from raptor.config.analysis import ProbesConfig
from raptor.data.split import ImageSplit
from raptor.errors import RaptorError
from raptor.probes.classification import Features, Source, fit_probe, predict, top1
from raptor.probes.crops import RandomCrops
from raptor.probes.features import pooled_features
from raptor.seeds import derive_seed
from raptor.stored import open_teacher
from raptor.teachers.adapter import Teacher
from raptor.training.checkpoint import Checkpoint

log = logging.getLogger(__name__)

IMAGES = 128  # images in memory at a time, with all their states
LOG_SECONDS = 5.0

LastState = Callable[[Tensor], Tensor]  # stored states (B, S', T, D) -> a last state a_L (B, T, D)
FromEmbedding = Callable[[Tensor], Tensor]  # a_0 (B, T, D) -> a last state a_L (B, T, D)


def last_stored(states_BSTD: Tensor) -> Tensor:
    """The last of the states read: the teacher's own a_L."""
    return states_BSTD[:, -1]


@dataclass(frozen=True)
class Readout:
    """Features of the last state of every image, and how the teacher's head does on it (or NaN)."""

    features: Features
    accuracy_head: float

    def accuracy(self, probe: nn.Linear) -> float:
        """Top-1 of `probe` on these features, in [0, 1]."""
        return top1(predict(probe, self.features), self.features.labels)


@dataclass(frozen=True)
class Probing:
    """A teacher, its stored states, and where to compute."""

    name: str
    teacher: Teacher
    activations: Activations
    config: ProbesConfig
    device: torch.device

    @classmethod
    def open(
        cls,
        teacher: Path,
        activations: Path,
        config: ProbesConfig,
        device: torch.device,
        *,
        head: Path | None = None,
    ) -> Probing:
        """Load both; RaptorError where the store does not hold this teacher's states."""
        model, store = open_teacher(teacher, activations, device, head=head)
        return cls(Path(teacher).stem, model, store, config, device)

    def read_out(
        self,
        split: str,
        last: LastState,
        *,
        title: str,
        layers: list[int] | None = None,
        images: int | None = None,
    ) -> Readout:
        """Stream the states `layers` of the first `images` of `split` through `last`.

        All layers and all images by default.
        """
        values, labels, hits = [], [], 0
        with torch.inference_mode():
            for states_BSTD, labels_B in self._stream(split, layers, images, title):
                state_BTD = last(states_BSTD)
                values.append(self._pooled(state_BTD, title))
                labels.append(labels_B)
                if self.teacher.num_classes:
                    found_B = self.teacher.logits(state_BTD).argmax(dim=1).cpu().numpy()
                    hits += int((found_B == labels_B).sum())
        # Outside inference mode: a probe is trained on these tensors.
        features = Features.of(np.concatenate(values), np.concatenate(labels))
        known = bool(self.teacher.num_classes)
        return Readout(features, hits / len(features.labels) if known else float("nan"))

    def _stream(
        self, split: str, layers: list[int] | None, images: int | None, title: str
    ) -> Iterator[tuple[Tensor, np.ndarray]]:
        seen, logged = 0, time.monotonic()
        for _, states_BSTD, labels_B in self.activations.blocks(split, IMAGES, layers, images):
            yield torch.from_numpy(states_BSTD).to(self.device), labels_B
            seen += len(labels_B)
            if time.monotonic() - logged > LOG_SECONDS:
                log.info("%s: %d images of %s read", title, seen, split)
                logged = time.monotonic()

    @property
    def crops(self) -> bool:
        """Whether probes are trained on random crops of the images."""
        return self.config.classification.crops == "random"

    @cached_property
    def _trained_on(self) -> ImageSplit:
        """Listed once: ImageNet has 1.28 million files."""
        split = images_of(self.activations.manifest, self.activations.path, "train")
        return split.first(self.config.classification.train_images)

    def random_crops(self, last: FromEmbedding, *names: object, title: str) -> RandomCrops:
        """Those of the training images, as the model `last` sees them; drawn by `names`."""

        @torch.inference_mode()
        def read(images_BCHW: Tensor) -> np.ndarray:
            parts = images_BCHW.to(self.device).split(IMAGES)
            states = (last(self.teacher.embed(part_BCHW)) for part_BCHW in parts)
            return np.concatenate([self._pooled(state_BTD, title) for state_BTD in states])

        seed = derive_seed(self.config.seed, "crops", self.name, *names)
        return RandomCrops(self._trained_on, read, seed)

    def _pooled(self, state_BTD: Tensor, title: str) -> np.ndarray:
        try:
            return pooled_features(self.teacher, state_BTD)
        except RaptorError as error:
            raise RaptorError(f"{title}: {error}") from None

    def fit(
        self,
        start: nn.Linear,
        train: Source,
        val: Readout,
        *names: object,
        title: str,
        checkpoint: Checkpoint,
    ) -> nn.Linear:
        """A probe trained from `start`; its data order depends on `names` and the seed alone.

        Only a training that takes long is kept in `checkpoint`: one on random crops.
        """
        return fit_probe(
            start=start,
            train=train,
            val=val.features,
            config=self.config.classification,
            seed=derive_seed(self.config.seed, "probe", self.name, *names),
            device=self.device,
            title=title,
            checkpoint=checkpoint if self.crops else None,
        )
