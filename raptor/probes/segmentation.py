"""The segmentation probe: which class each pixel is of, linear on patch tokens (paper §6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms.v2 import functional as transform

from raptor.config.dense import SegmentationProbe
from raptor.data.pairs import IGNORE, DenseSplit, Pair, in_order
from raptor.probes.backbone import Backbone
from raptor.probes.dense import linear_head, train_head
from raptor.probes.dense_scores import SegmentationScores, resized_classes
from raptor.training.checkpoint import Checkpoint


def input_size(config: SegmentationProbe, _patch_size: tuple[int, int]) -> tuple[int, int]:
    """Height and width that the teacher has to be made for."""
    return config.image_size, config.image_size


def fit(
    *,
    backbone: Backbone,
    train: DenseSplit,
    config: SegmentationProbe,
    seed: int,
    title: str,
    checkpoint: Checkpoint | None = None,
) -> nn.Conv2d:
    """A head (D → classes, 1×1) trained on the patch tokens of `backbone` by cross-entropy.

    Images and classes are resized to the square `config.image_size`, the logits to the same
    (bilinear). Pixels of `IGNORE` play no part. See `train_head` for order and resumption.
    """
    head = linear_head(backbone.width, len(train.class_names)).to(backbone.device)
    size = [config.image_size, config.image_size]

    def prepare(pair: Pair) -> Pair:
        image_CHW, classes_HW = pair
        return _input(backbone, image_CHW, config), resized_classes(classes_HW, size)

    def loss(patches_BDhw: Tensor, classes_BHW: Tensor) -> Tensor:
        logits_BCHW = upsampled(head(patches_BDhw), size)
        return cross_entropy(logits_BCHW, classes_BHW.to(backbone.device))

    train_head(
        head=head,
        loss=loss,
        split=train,
        prepare=prepare,
        encode=lambda images_BCHW: backbone.features(images_BCHW).patches,
        config=config,
        seed=seed,
        title=title,
        checkpoint=checkpoint,
    )
    return head


@torch.no_grad()
def predict(
    backbone: Backbone, head: nn.Conv2d, images: Sequence[Tensor], *, config: SegmentationProbe
) -> list[Tensor]:
    """The class (H, W) int64 of each pixel of uint8 RGB images (3, H, W), each at its own size."""
    logits_BChw = _logits(backbone, head, images, config)
    return [
        _classes(logits_Chw, image_CHW.shape[1:])
        for logits_Chw, image_CHW in zip(logits_BChw, images, strict=True)
    ]


def _logits(
    backbone: Backbone, head: nn.Conv2d, images: Sequence[Tensor], config: SegmentationProbe
) -> Tensor:
    """(B, C, h, w), one for each patch."""
    inputs_BCHW = torch.stack([_input(backbone, image_CHW, config) for image_CHW in images])
    return head(backbone.features(inputs_BCHW).patches)


def _classes(logits_Chw: Tensor, size: Sequence[int]) -> Tensor:
    return upsampled(logits_Chw[None], size)[0].argmax(dim=0).cpu()


@torch.no_grad()
def evaluate(
    *,
    backbone: Backbone,
    head: nn.Conv2d,
    test: DenseSplit,
    config: SegmentationProbe,
    title: str,
) -> dict[str, float]:
    """See `SegmentationScores`."""
    scores = SegmentationScores(len(test.class_names), config)
    for pairs in in_order(test, title):
        logits_BChw = _logits(backbone, head, [image_CHW for image_CHW, _ in pairs], config)
        for logits_Chw, (_, classes_HW) in zip(logits_BChw, pairs, strict=True):
            scores.add(partial(_classes, logits_Chw), classes_HW)
    return scores.summary()


def cross_entropy(logits_BCHW: Tensor, classes_BHW: Tensor) -> Tensor:
    """Mean over the pixels that are not `IGNORE`; 0 where there is none."""
    total = F.cross_entropy(logits_BCHW, classes_BHW, ignore_index=IGNORE, reduction="sum")
    return total / (classes_BHW != IGNORE).sum().clamp(min=1)


def upsampled(maps_BChw: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinear, each patch centred on its pixels."""
    return F.interpolate(maps_BChw, tuple(size), mode="bilinear", align_corners=False)


def _input(backbone: Backbone, image_CHW: Tensor, config: SegmentationProbe) -> Tensor:
    size = [config.image_size, config.image_size]
    return backbone.normalised(transform.resize(image_CHW, size, antialias=True))
