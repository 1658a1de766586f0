"""What both dense probes share: batches of pairs, and the training of a linear head."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from raptor.config.dense import KEPT_BYTES, DenseProbe
from raptor.data.ahead import Ahead
from raptor.data.files import in_threads
from raptor.data.pairs import DenseSplit, Pair, in_order
from raptor.training.checkpoint import Checkpoint
from raptor.training.epochs import Batch, Epochs
from raptor.training.loop import fit
from raptor.training.schedules import warmup_cosine

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
    images = config.trained_on(len(split))
    epochs = Epochs(images, config.batch_size, config.epochs, seed, "dense probe order")
    read = _reader(split, images, prepare, encode, title)
    optimizer = torch.optim.AdamW(
        head.parameters(), config.lr, weight_decay=config.weight_decay, fused=True
    )
    schedule = functools.partial(
        warmup_cosine,
        steps=epochs.steps,
        warmup_steps=config.warmup_steps,
        lr=config.lr,
        min_lr=0.0,
    )

    def step(index: int) -> dict[str, float]:
        value = loss(*read(epochs.batch(index), epochs.batch(index + 1)))
        optimizer.zero_grad()
        value.backward()
        optimizer.param_groups[0]["lr"] = schedule(index)
        optimizer.step()
        return {"loss": value.item()}

    fit(
        title=title,
        steps=epochs.steps,
        step=step,
        parts={"head": head, "optimizer": optimizer},
        checkpoint=checkpoint,
        validate_every=epochs.steps_per_epoch,
    )


def _reader(
    split: DenseSplit, images: int, prepare: Prepare, encode: Encode, title: str
) -> Callable[[Batch, Batch | None], Pair]:
    """Features and targets of the images of a batch, given also which one follows.

    Read each time, those to come while the present ones are used; or once for all, where those of
    the first `images` take no more than `KEPT_BYTES`: always in the same batches, as what an image
    gives may depend on its batch in the last bit.
    """

    def stacked(pairs: Iterable[Pair]) -> Pair:
        pixels, targets = zip(*pairs, strict=True)
        return torch.stack(pixels), torch.stack(targets)

    def encoded(pairs: Iterable[Pair]) -> Pair:
        pixels_BCHW, targets_BHW = stacked(pairs)
        return encode(pixels_BCHW), targets_BHW

    bytes_of_one = sum(part.nbytes for part in encoded([prepare(split.pair(0))]))
    if images * bytes_of_one > KEPT_BYTES:
        make = lambda index: prepare(split.pair(index))
        ahead = Ahead[Batch, list[Pair]](lambda batch: list(in_threads(make, batch.images)))
        return lambda batch, following: encoded(ahead.take(batch, following))
    batches = [encoded(map(prepare, pairs)) for pairs in in_order(split, title, images)]
    features_NFhw, targets_NHW = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return lambda batch, _following: (features_NFhw[batch.images], targets_NHW[batch.images])
