"""The segmentation probe: which class each pixel is of, linear on patch tokens (paper §6)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transform

from raptor.config.dense import SegmentationProbe
from raptor.data.pairs import IGNORE, DenseSplit
from raptor.probes.backbone import Backbone
from raptor.probes.dense import Pair, in_order, linear_head, train_head
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
    """`miou`, `miou_authors`, `pixel_accuracy` in [0, 1], and `n_test` images.

    Over the pixels of all images together. `miou` and `pixel_accuracy` at each image's own size,
    `miou` over the classes that are in the truth or in what is said. `miou_authors` as the
    authors' code has it: at the size of the input, against classes resized to it, and over all
    classes, one that is in neither counted as 0. The paper does not say (§Method 6); on the whole
    test split of ADE20K every class is there.
    """
    classes = len(test.class_names)
    own_CC, resized_CC = torch.zeros(2, classes, classes, dtype=torch.int64)
    size = [config.image_size, config.image_size]
    for pairs in in_order(test, title):
        images = [image_CHW for image_CHW, _ in pairs]
        logits_BChw = _logits(backbone, head, images, config)
        for logits_Chw, (_, classes_HW) in zip(logits_BChw, pairs, strict=True):
            own_CC += confusion(_classes(logits_Chw, classes_HW.shape), classes_HW, classes)
            small_HW = resized_classes(classes_HW, size)
            resized_CC += confusion(_classes(logits_Chw, size), small_HW, classes)
    return {
        "miou": float(iou(own_CC).nanmean()),
        "miou_authors": float(iou(resized_CC).nan_to_num(nan=0.0).mean()),
        "pixel_accuracy": int(own_CC.diagonal().sum()) / max(int(own_CC.sum()), 1),
        "n_test": len(test),
    }


def confusion(predicted_HW: Tensor, classes_HW: Tensor, classes: int) -> Tensor:
    """Pixels (C, C) by true class (row) and predicted class (column), without those of `IGNORE`."""
    counted = classes_HW != IGNORE
    cells = classes * classes_HW[counted] + predicted_HW[counted]
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)


def iou(confusion_CC: Tensor) -> Tensor:
    """(C,) float64 in [0, 1], pixels of both over pixels of either; NaN of a class in neither."""
    inter_C = confusion_CC.diagonal().double()
    return inter_C / (confusion_CC.sum(dim=0) + confusion_CC.sum(dim=1) - inter_C)


def cross_entropy(logits_BCHW: Tensor, classes_BHW: Tensor) -> Tensor:
    """Mean over the pixels that are not `IGNORE`; 0 where there is none."""
    total = F.cross_entropy(logits_BCHW, classes_BHW, ignore_index=IGNORE, reduction="sum")
    return total / (classes_BHW != IGNORE).sum().clamp(min=1)


def upsampled(maps_BChw: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinear, each patch centred on its pixels."""
    return F.interpolate(maps_BChw, tuple(size), mode="bilinear", align_corners=False)


def resized_classes(classes_HW: Tensor, size: Sequence[int]) -> Tensor:
    """The nearest pixel's class."""
    nearest = InterpolationMode.NEAREST_EXACT
    return transform.resize(classes_HW[None], list(size), interpolation=nearest)[0]


def _input(backbone: Backbone, image_CHW: Tensor, config: SegmentationProbe) -> Tensor:
    size = [config.image_size, config.image_size]
    return backbone.normalised(transform.resize(image_CHW, size, antialias=True))
