"""What both dense probes share: batches of pairs, and the training of a linear head."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from raptor.config.dense import DenseProbe
from raptor.data.files import in_threads
from raptor.data.pairs import DenseSplit
from raptor.seeds import derive_seed
from raptor.training.checkpoint import Checkpoint
from raptor.training.loop import fit
from raptor.training.schedules import warmup_cosine

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0

Pair = tuple[Tensor, Tensor]  # an image and its target, as in `DenseSplit.pair`
Prepare = Callable[[Pair], Pair]  # to the sizes of a batch
Loss = Callable[[Tensor, Tensor], Tensor]  # images (B, C, H, W), targets (B, H, W) -> scalar


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
        value = loss(*_stacked(split, chosen, prepare))
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


def _stacked(split: DenseSplit, indices: list[int], prepare: Prepare) -> Pair:
    pairs = list(in_threads(split.pair, indices))  # all of them first: torch resizes on the same
    images, targets = zip(*map(prepare, pairs), strict=True)
    return torch.stack(images), torch.stack(targets)


def in_order(
    split: DenseSplit, batch_size: int, title: str, images: int | None = None
) -> Iterator[list[Pair]]:
    """The pairs of the first `images` images, all by default, in batches, with a word on the way.

    As they are: each of its own size.
    """
    total, logged = min(len(split), images or len(split)), time.monotonic()
    for start in range(0, total, batch_size):
        stop = min(start + batch_size, total)
        yield list(in_threads(split.pair, range(start, stop)))
        if time.monotonic() - logged > LOG_SECONDS:
            log.info("%s: %d of %d images", title, stop, total)
            logged = time.monotonic()
