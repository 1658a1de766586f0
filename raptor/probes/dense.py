"""What both dense probes share: batches of pairs, and the training of a linear head."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from raptor.config.dense import KEPT_BYTES, DenseProbe
from raptor.data.files import in_threads
from raptor.data.pairs import DenseSplit
from raptor.seeds import derive_seed
from raptor.training.checkpoint import Checkpoint
from raptor.training.loop import fit
from raptor.training.schedules import warmup_cosine

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0
TOGETHER = 16  # images of a pass in order that are in memory at a time

Pair = tuple[Tensor, Tensor]  # an image and its target, as in `DenseSplit.pair`
Prepare = Callable[[Pair], Pair]  # to the sizes of a batch
Encode = Callable[[Tensor], Tensor]  # images (B, C, H, W) -> frozen features (B, F, h, w)
Loss = Callable[[Tensor, Tensor], Tensor]  # features (B, F, h, w), targets (B, H, W) -> scalar


def linear_head(channels: int, outputs: int) -> nn.Conv2d:
    """A 1×1 convolution of zeros: the same start whatever was drawn at random before."""
    head = nn.utils.skip_init(nn.Conv2d, channels, outputs, kernel_size=1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def train_head(
    *,
    head: nn.Module,
    loss: Loss,
    split: DenseSplit,
    prepare: Prepare,
    encode: Encode,
    config: DenseProbe,
    seed: int,
    title: str,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Train `head` in place to descend `loss` on pairs of `split` (paper §6).

    AdamW with linear warm-up and cosine to zero, order reshuffled from `seed` each epoch. An
    interrupted training continues from `checkpoint`, to the same head bit for bit on a CPU. The
    head of the last step is kept: these data sets have no split to choose an epoch on.
    """
    images = min(len(split), config.train_images or len(split))
    per_epoch = -(-images // config.batch_size)
    read = _reader(split, images, prepare, encode, title)
    optimizer = torch.optim.AdamW(
        head.parameters(), config.lr, weight_decay=config.weight_decay, fused=True
    )
    schedule = functools.partial(
        warmup_cosine,
        steps=config.epochs * per_epoch,
        warmup_steps=config.warmup_steps,
        lr=config.lr,
        min_lr=0.0,
    )

    @functools.lru_cache(maxsize=1)
    def order(epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(seed, "dense probe order", epoch))
        return torch.randperm(images, generator=generator)

    def step(index: int) -> dict[str, float]:
        epoch, position = divmod(index, per_epoch)
        start = position * config.batch_size
        chosen = order(epoch)[start : start + config.batch_size].tolist()
        value = loss(*read(chosen))
        optimizer.zero_grad()
        value.backward()
        optimizer.param_groups[0]["lr"] = schedule(index)
        optimizer.step()
        return {"loss": value.item()}

    fit(
        title=title,
        steps=config.epochs * per_epoch,
        step=step,
        parts={"head": head, "optimizer": optimizer},
        checkpoint=checkpoint,
        validate_every=per_epoch,
    )


def _reader(
    split: DenseSplit, images: int, prepare: Prepare, encode: Encode, title: str
) -> Callable[[list[int]], Pair]:
    """Features and targets of the images at some indices, read each time or once for all.

    Once, where those of the first `images` take no more than `KEPT_BYTES`: always in the same
    batches, as what an image gives may depend on its batch in the last bit.
    """

    def encoded(pairs: Iterable[Pair]) -> Pair:
        pixels, targets = zip(*map(prepare, pairs), strict=True)
        return encode(torch.stack(pixels)), torch.stack(targets)

    bytes_of_one = sum(part.nbytes for part in encoded([split.pair(0)]))
    if images * bytes_of_one > KEPT_BYTES:
        # All are decoded first: torch resizes on the same threads.
        return lambda indices: encoded(list(in_threads(split.pair, indices)))
    batches = [encoded(pairs) for pairs in in_order(split, title, images)]
    features_NFhw, targets_NHW = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return lambda indices: (features_NFhw[indices], targets_NHW[indices])


def in_order(split: DenseSplit, title: str, images: int | None = None) -> Iterator[list[Pair]]:
    """The pairs of the first `images` images (all by default), `TOGETHER` at a time."""
    total, logged = images or len(split), time.monotonic()
    for start in range(0, total, TOGETHER):
        stop = min(start + TOGETHER, total)
        yield list(in_threads(split.pair, range(start, stop)))
        if time.monotonic() - logged > LOG_SECONDS:
            log.info("%s: %d of %d images", title, stop, total)
            logged = time.monotonic()
