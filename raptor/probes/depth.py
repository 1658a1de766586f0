"""The depth probe: how far each pixel is, linear on `[patch ; cls]` to bins (paper §6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transform

from raptor.config.dense import UPSAMPLING, DepthProbe
from raptor.data.pairs import UNMEASURED, DenseSplit, Pair, in_order
from raptor.probes.backbone import Backbone
from raptor.probes.dense import linear_head, train_head
from raptor.probes.dense_scores import DepthScores
from raptor.training.checkpoint import Checkpoint


class Window(NamedTuple):
    """Where the image of `height` × `width` px is in its padded input: in the middle."""

    top: int
    left: int
    height: int
    width: int
    padded_height: int
    padded_width: int

    @classmethod
    def of(cls, size: Sequence[int], patch_size: tuple[int, int]) -> Window:
        """Padded to the next multiple of the patch size; an odd row or column below or right."""
        high, wide = (
            -(-side // patch) * patch for side, patch in zip(size, patch_size, strict=True)
        )
        return cls((high - size[0]) // 2, (wide - size[1]) // 2, *size, high, wide)

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Left, right, top, bottom, as torch counts them."""
        right = self.padded_width - self.width - self.left
        return self.left, right, self.top, self.padded_height - self.height - self.top

    def cut(self, maps_BCHW: Tensor) -> Tensor:
        """The image's part of padded maps."""
        rows = slice(self.top, self.top + self.height)
        return maps_BCHW[..., rows, self.left : self.left + self.width]


def input_size(config: DepthProbe, patch_size: tuple[int, int]) -> tuple[int, int]:
    """Height and width that the teacher has to be made for: `image_size`, padded."""
    window = Window.of(config.image_size, patch_size)
    return window.padded_height, window.padded_width


def fit(
    *,
    backbone: Backbone,
    train: DenseSplit,
    config: DepthProbe,
    seed: int,
    title: str,
    checkpoint: Checkpoint | None = None,
) -> nn.Conv2d:
    """A head (`[patch ; cls]` → bins, 1×1) trained by `10 · SI-log + cross-entropy`.

    SI-log compares the expected depth at every measured pixel of the input, cross-entropy the
    bins at the head's own resolution, four to a patch and side: bins for every pixel of a batch
    would not fit in memory. See `train_head` for order and resumption.
    """
    head = linear_head(backbone.joined_width, config.bins).to(backbone.device)
    window = Window.of(config.image_size, backbone.teacher.patch_size)
    bins_K = depth_bins(config).to(backbone.device)

    def prepare(pair: Pair) -> Pair:
        image_CHW, depth_HW = pair
        depth_HW = _nearest(depth_HW[None], config.image_size)[0]
        return (
            _input(backbone, image_CHW, config, window),
            F.pad(depth_HW, window.padding, value=UNMEASURED),
        )

    def loss(joined_BFhw: Tensor, depth_BHW: Tensor) -> Tensor:
        depth_BHW = depth_BHW.to(backbone.device)
        logits_BKhw = bin_logits(head, joined_BFhw)
        expected_BHW = _resized(expected_depth(logits_BKhw, bins_K), depth_BHW.shape[1:])
        coarse_Bhw = _nearest(depth_BHW, logits_BKhw.shape[2:])
        return config.si_log_weight * si_log(
            expected_BHW, depth_BHW, config.si_log_lambda
        ) + bin_cross_entropy(logits_BKhw, coarse_Bhw, config)

    train_head(
        head=head,
        loss=loss,
        split=train,
        prepare=prepare,
        encode=lambda images_BCHW: backbone.features(images_BCHW).joined(),
        config=config,
        seed=seed,
        title=title,
        checkpoint=checkpoint,
    )
    return head


@torch.no_grad()
def predict(
    backbone: Backbone, head: nn.Conv2d, images: Sequence[Tensor], *, config: DepthProbe
) -> list[Tensor]:
    """Metres (H, W) float32 at each pixel of uint8 RGB images (3, H, W), each at its own size."""
    window = Window.of(config.image_size, backbone.teacher.patch_size)
    inputs_BCHW = torch.stack([_input(backbone, image, config, window) for image in images])
    logits_BKhw = bin_logits(head, backbone.features(inputs_BCHW).joined())
    expected_Bhw = expected_depth(logits_BKhw, depth_bins(config).to(logits_BKhw.device))
    depth_BHW = window.cut(_resized(expected_Bhw, (window.padded_height, window.padded_width)))
    return [
        _resized(depth_HW[None], image_CHW.shape[1:])[0].cpu()
        for depth_HW, image_CHW in zip(depth_BHW, images, strict=True)
    ]


def evaluate(
    *, backbone: Backbone, head: nn.Conv2d, test: DenseSplit, config: DepthProbe, title: str
) -> dict[str, float]:
    """See `DepthScores`."""
    scores = DepthScores(test.origin, config)
    for pairs in in_order(test, title):
        images = [image_CHW for image_CHW, _ in pairs]
        found = predict(backbone, head, images, config=config)
        for predicted_HW, (_, depth_HW) in zip(found, pairs, strict=True):
            scores.add(lambda _size, predicted_HW=predicted_HW: predicted_HW, depth_HW)
    return scores.summary()


def depth_bins(config: DepthProbe) -> Tensor:
    """(K,) metres, evenly spaced from `min_m` to `max_m`, both included."""
    return torch.linspace(config.min_m, config.max_m, config.bins)


def nearest_bin(depth: Tensor, config: DepthProbe) -> Tensor:
    """The index, int64, of the bin nearest to each depth; beyond the ends, the last."""
    spacing = (config.max_m - config.min_m) / (config.bins - 1)
    return ((depth - config.min_m) / spacing).round().clamp(0, config.bins - 1).long()


def bin_logits(head: nn.Conv2d, joined_BFhw: Tensor) -> Tensor:
    """Logits (B, K, 4h, 4w) of the bins from features (B, F, h, w), four to a patch and side.

    The features are upsampled (bilinear) before the head in the paper. Both are linear and the
    weights of bilinear sum to 1, so the order is free, and in this one the head has a sixteenth
    of the work.
    """
    return F.interpolate(
        head(joined_BFhw), scale_factor=UPSAMPLING, mode="bilinear", align_corners=False
    )


def expected_depth(logits_BKhw: Tensor, bins_K: Tensor) -> Tensor:
    """(B, h, w) metres: the mean of the bins, each weighted by its softmax."""
    return torch.einsum("bkhw,k->bhw", logits_BKhw.softmax(dim=1), bins_K)


def si_log(predicted_BHW: Tensor, depth_BHW: Tensor, variance_focus: float) -> Tensor:
    """mean g² − λ (mean g)², g = log(predicted / depth), over measured pixels; 0 without any.

    The scale-invariant error of Eigen et al. (2014), with λ = 0.85; without the root that others
    take of it, as the authors' code has it.
    """
    measured = depth_BHW > UNMEASURED
    if not measured.any():
        return 0 * predicted_BHW.sum()
    g = predicted_BHW[measured].log() - depth_BHW[measured].log()
    return g.square().mean() - variance_focus * g.mean().square()


def bin_cross_entropy(logits_BKhw: Tensor, depth_Bhw: Tensor, config: DepthProbe) -> Tensor:
    """Cross-entropy with the nearest bin, over measured pixels; 0 without any."""
    measured = depth_Bhw > UNMEASURED
    classes_Bhw = torch.where(measured, nearest_bin(depth_Bhw, config), -1)
    total = F.cross_entropy(logits_BKhw, classes_Bhw, ignore_index=-1, reduction="sum")
    return total / measured.sum().clamp(min=1)


def _input(backbone: Backbone, image_CHW: Tensor, config: DepthProbe, window: Window) -> Tensor:
    image_CHW = transform.resize(image_CHW, config.image_size, antialias=True)
    # Padded after normalisation: with the colour of the mean.
    return F.pad(backbone.normalised(image_CHW), window.padding)


def _resized(depth_BHW: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinear."""
    maps_B1HW = depth_BHW[:, None]
    return F.interpolate(maps_B1HW, tuple(size), mode="bilinear", align_corners=False)[:, 0]


def _nearest(depth_BHW: Tensor, size: Sequence[int]) -> Tensor:
    """Of measured and unmeasured pixels no mean is taken."""
    return transform.resize(depth_BHW, list(size), interpolation=InterpolationMode.NEAREST_EXACT)
