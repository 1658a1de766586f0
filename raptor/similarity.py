"""How similar the layers of a teacher are to one another, streamed over images.

Four measures between the states after layers l and m, l, m = 1..L (state 0, the embedding, is
left out). All sums are in float64, whatever the precision of the stored states.

- `cosine`, in [-1, 1]: per image, the cosine of the cls token and that of the mean patch token,
  averaged over the two (mean patch alone without a cls token). The published measure (paper,
  "Similarity").
- `cosine_all_tokens`, in [-1, 1]: per image, the mean over all tokens of the token's cosine.
- `mean_squared_difference`, ≥ 0: per image, the mean over tokens and width.
- `cka`, in [-1, 1]: linear CKA of the flattened states with the unbiased HSIC_1 (Song et al.,
  2012), averaged over mini-batches before the ratio is taken (Nguyen, Raghu & Kornblith, 2021).

The first three are means over images, and the bootstrap draws images. HSIC exists only for a
batch, so the bootstrap of `cka` draws batches (disjoint groups of images).
A zero vector has cosine 0 with everything.
"""

from __future__ import annotations

import csv
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.seeds import derive_seed
from raptor.tokens import TokenLayout

if TYPE_CHECKING:
    import torch

    from raptor.config.analysis import SimilarityConfig

log = logging.getLogger(__name__)

IMAGE_MEASURES = ("cosine", "cosine_all_tokens", "mean_squared_difference")
MEASURES = (*IMAGE_MEASURES, "cka")
COLUMNS = "teacher measure layer_a layer_b value ci_low ci_high n n_units"
SMALLEST_BATCH = 4  # HSIC_1 divides by n (n - 3)

LOG_SECONDS = 5.0
WORK_BYTES = 32 * 2**20  # float64 copies are made for so many bytes of images at a time

Block = tuple[int, np.ndarray, np.ndarray]  # first image, states_BSTD, labels_B


@dataclass(frozen=True)
class Similarity:
    """Matrices (L, L) by measure, and their bootstrap resamples (R, L, L).

    `n_images` is how many images entered; `n_units` how many units the bootstrap draws from:
    images, or batches for `cka`.
    """

    matrices: dict[str, np.ndarray]
    resamples: dict[str, np.ndarray]
    n_images: int
    n_units: dict[str, int]

    def interval(self, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """Percentile bootstrap 95 % interval of every entry; NaN from fewer than two units."""
        if self.n_units[measure] < 2:
            return (np.full_like(self.matrices[measure], np.nan),) * 2
        low, high = np.percentile(self.resamples[measure], [2.5, 97.5], axis=0)
        return low, high


def similarity(
    blocks: Iterable[Block], layout: TokenLayout, *, bootstrap: int, seed: int
) -> Similarity:
    """All measures over a stream of blocks `(first image, states_BSTD, labels_B)`."""
    stream = SimilarityStream(layout, bootstrap=bootstrap, seed=seed)
    for first, states_BSTD, _ in blocks:
        stream.add(first, states_BSTD[:, 1:])
    return stream.result()


class SimilarityStream:
    """All measures between L vectors per token and image, added block by block.

    Memory does not grow with the number of images. Neither the values nor the bootstrap of the
    measures per image depend on the block size; a block is a batch of `cka`, weighted by its
    number of images, and a last block of fewer than four images is left out of `cka`. Two streams
    of the same images and seed draw the same resamples, in the same order.
    Raises RaptorError for states that are not finite and for too few images.
    """

    def __init__(self, layout: TokenLayout, *, bootstrap: int, seed: int) -> None:
        self.layout = layout
        self._images = BootstrapMean(bootstrap, derive_seed(seed, "similarity", "images"))
        self._batches = BootstrapMean(bootstrap, derive_seed(seed, "similarity", "batches"))

    def add(self, first: int, states_BLTD: np.ndarray) -> None:
        """The states 1..L of the images `first`, `first + 1`, …"""
        _refuse(states_BLTD, self.layout, first)
        self._images.add(first, image_similarities(states_BLTD, self.layout))
        size = len(states_BLTD)
        if size >= SMALLEST_BATCH:
            self._batches.add(first, unbiased_hsic(_grams(states_BLTD))[None], weight=size)

    def result(self) -> Similarity:
        images, batches = self._images, self._batches
        if not batches.units:
            raise RaptorError(
                f"similarity: {images.units} images in batches smaller than {SMALLEST_BATCH} are "
                "too few; raise similarity.batch_images or the images of the split"
            )
        values, resamples = images.mean(), images.resamples()
        matrices = {name: values[i] for i, name in enumerate(IMAGE_MEASURES)}
        drawn = {name: resamples[:, i] for i, name in enumerate(IMAGE_MEASURES)}
        matrices["cka"] = _ratio(batches.mean())
        drawn["cka"] = _ratio(batches.resamples())
        units = {**dict.fromkeys(IMAGE_MEASURES, images.units), "cka": batches.units}
        return Similarity(matrices, drawn, images.units, units)


def image_similarities(states_BLTD: np.ndarray, layout: TokenLayout) -> np.ndarray:
    """(B, 3, L, L): the measures per image, in the order of `IMAGE_MEASURES`."""
    spans = layout.slices()
    out = []
    for part_BLTD in _float64_parts(states_BLTD):
        tokens = [part_BLTD[:, :, spans["patches"]].mean(axis=2)]
        if layout.cls:
            tokens.append(part_BLTD[:, :, 0])
        published = np.mean([_gram(_unit(token_BLD)) for token_BLD in tokens], axis=0)
        size, depth, n_tokens, width = part_BLTD.shape
        dots = _gram(part_BLTD.reshape(size, depth, -1))
        squares = np.einsum("bll->bl", dots)
        difference = squares[:, :, None] + squares[:, None] - 2 * dots
        every_token = _gram(_unit(part_BLTD).reshape(size, depth, -1)) / n_tokens
        out.append(np.stack([published, every_token, difference / (n_tokens * width)], axis=1))
    return np.concatenate(out)


def unbiased_hsic(grams_LBB: np.ndarray) -> np.ndarray:
    """HSIC_1 (L, L) between L Gram matrices of the same B ≥ 4 images (Song et al., 2012).

    With the diagonals of K and M set to 0:
    [tr(K M) + 1ᵀK1 1ᵀM1 / ((n-1)(n-2)) - 2 1ᵀK M1 / (n-2)] / (n (n-3)).
    """
    n = grams_LBB.shape[-1]
    if n < SMALLEST_BATCH:
        raise RaptorError(f"unbiased HSIC: {n} images; give at least {SMALLEST_BATCH}")
    hollow_LBB = grams_LBB * (1 - np.eye(n))
    flat = hollow_LBB.reshape(len(hollow_LBB), -1)
    rows_LB = hollow_LBB.sum(axis=2)
    sums_L = rows_LB.sum(axis=1)
    trace = flat @ flat.T
    mean = np.outer(sums_L, sums_L) / ((n - 1) * (n - 2))
    return (trace + mean - 2 / (n - 2) * rows_LB @ rows_LB.T) / (n * (n - 3))


def unbiased_cka(x: np.ndarray, y: np.ndarray) -> float:
    """Linear CKA with unbiased HSIC of two feature matrices (n, p) and (n, q), n ≥ 4.

    In [-1, 1]; around 0, on either side, for independent features; NaN if one is constant.
    """
    if len(x) != len(y):
        raise RaptorError(f"unbiased CKA: {len(x)} and {len(y)} rows; give the same images to both")
    centred = [np.asarray(z, np.float64) - np.mean(z, axis=0, dtype=np.float64) for z in (x, y)]
    grams = np.stack([z @ z.T for z in centred])
    return float(_ratio(unbiased_hsic(grams))[0, 1])


class BootstrapMean:
    """Weighted mean of a stream of arrays, and of `n_resamples` Poisson resamples of it.

    In a resample every unit counts Poisson(1) times (the streaming form of drawing with
    replacement). The counts of a unit follow from the seed and the unit's number alone, so the
    resamples do not depend on how the stream is cut into blocks, and all values of one unit are
    resampled together.
    """

    def __init__(self, n_resamples: int, seed: int) -> None:
        self.n_resamples, self.seed = n_resamples, seed
        self.units = 0
        self._total = self._weight = self._totals_R = self._weights_R = 0.0

    def add(self, first: int, values: np.ndarray, weight: float = 1.0) -> None:
        """`values` (U, …) of the units `first`, `first + 1`, …, all of the same weight."""
        units = range(first, first + len(values))
        counts_UR = weight * np.array([self._counts(unit) for unit in units])
        self.units += len(values)
        self._total = self._total + weight * values.sum(axis=0)
        self._weight += weight * len(values)
        self._totals_R = self._totals_R + np.tensordot(counts_UR, values, axes=(0, 0))
        self._weights_R = self._weights_R + counts_UR.sum(axis=0)

    def _counts(self, unit: int) -> np.ndarray:
        return np.random.default_rng([self.seed, unit]).poisson(1.0, self.n_resamples)

    def mean(self) -> np.ndarray:
        return self._total / self._weight

    def resamples(self) -> np.ndarray:
        """(R, …). A resample that drew no unit at all has no mean and is left out: R can be
        smaller than `n_resamples` when there are few units (a share of exp(-units) on average).
        """
        kept = self._weights_R > 0
        if not kept.any():
            raise RaptorError(
                f"bootstrap: all {self.n_resamples} resamples of {self.units} units are empty; "
                "raise similarity.bootstrap or use more images"
            )
        totals = self._totals_R[kept]
        return totals / self._weights_R[kept].reshape(-1, *[1] * (totals.ndim - 1))


def _gram(vectors_BLD: np.ndarray) -> np.ndarray:
    """Inner products (B, L, L) of the layers' vectors."""
    return vectors_BLD @ vectors_BLD.swapaxes(1, 2)


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)


def _float64_parts(states_BLTD: np.ndarray) -> Iterator[np.ndarray]:
    """The same images in float64, few enough at a time that the copies stay small."""
    size = max(1, WORK_BYTES // (8 * states_BLTD[0].size))
    for start in range(0, len(states_BLTD), size):
        yield states_BLTD[start : start + size].astype(np.float64)


def _grams(states_BLTD: np.ndarray) -> np.ndarray:
    """(L, B, B) Gram matrices of the flattened states, summed over parts of the token axis.

    Centred over the batch: HSIC_1 does not change, but large common means no longer cancel.
    """
    size, depth, n_tokens, width = states_BLTD.shape
    grams = np.zeros((depth, size, size))
    step = max(1, WORK_BYTES // (8 * size * width))
    for layer in range(depth):
        for start in range(0, n_tokens, step):
            part = states_BLTD[:, layer, start : start + step].reshape(size, -1)
            part = part.astype(np.float64)
            part -= part.mean(axis=0)
            grams[layer] += part @ part.T
    return grams


def _ratio(hsic: np.ndarray) -> np.ndarray:
    """CKA from HSIC (…, L, L): divided by the root of the diagonals; NaN where one is not > 0."""
    own = np.diagonal(hsic, axis1=-2, axis2=-1)
    root = np.sqrt(np.where(own > 0, own, np.nan))
    return hsic / (root[..., :, None] * root[..., None, :])


def _refuse(states_BLTD: np.ndarray, layout: TokenLayout, first: int) -> None:
    if states_BLTD.shape[2] != layout.total:
        raise RaptorError(
            f"similarity: the states have {states_BLTD.shape[2]} tokens, the layout counts "
            f"{layout.total} ({layout.to_dict()}); give the layout of this teacher"
        )
    finite_BL = np.isfinite(states_BLTD).all(axis=(2, 3))
    if not finite_BL.all():
        image, layer = np.argwhere(~finite_BL)[0]
        raise RaptorError(
            f"similarity: the state of image {first + image} after layer {layer + 1} holds NaN or "
            "infinity; extract the activations again, as bfloat16 if float16 overflowed"
        )


# --- files ---------------------------------------------------------------------------------------


def write_similarity(
    *,
    activations: Path,
    config: SimilarityConfig,
    output: Path,
    matrices: Path,
    device: torch.device | str = "cpu",
) -> None:
    """All measures of one teacher from its states.

    `activations`: the manifest; `device` runs the teacher where they are streamed. `output`,
    `matrices`: as `save_similarity` writes them.
    """
    from raptor.activations.read import Activations

    store = Activations(activations, device)
    first, last = store.splits[config.split]
    blocks = logged(store.blocks(config.split, config.batch_images), last - first, "similarity")
    result = similarity(blocks, store.layout, bootstrap=config.bootstrap, seed=config.seed)
    save_similarity(result, store.teacher, output, matrices)


def save_similarity(result: Similarity, teacher: str, output: Path, matrices: Path) -> None:
    """`result` of one teacher as files.

    `output`: tidy CSV, one row per measure and pair of layers: `value`, 95 % CI, `n` images, and
    `n_units`, the images or batches that the bootstrap drew from. `matrices`: npz with
    `<measure>` (L, L) and `<measure>_bootstrap` (R, L, L), float64.
    """
    if result.n_units["cka"] < 2:
        log.warning("cka: a single batch has no interval; lower similarity.batch_images")
    with replacing(matrices) as temporary, open(temporary, "wb") as file:
        arrays = {f"{name}_bootstrap": drawn for name, drawn in result.resamples.items()}
        np.savez(file, **result.matrices, **arrays)
    with replacing(output) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS.split())
        writer.writerows((teacher, *row) for row in _rows(result))


def _rows(result: Similarity) -> Iterator[tuple]:
    for measure in MEASURES:
        values, (low, high) = result.matrices[measure], result.interval(measure)
        for (a, b), value in np.ndenumerate(values):
            yield (
                measure, a + 1, b + 1, float(value), float(low[a, b]), float(high[a, b]),
                result.n_images, result.n_units[measure],
            )  # fmt: skip


def logged(blocks: Iterable[Block], total: int, title: str) -> Iterator[Block]:
    """The same blocks, with a line in the log every few seconds."""
    done, started = 0, time.monotonic()
    shown = started
    for block in blocks:
        yield block
        done, now = done + len(block[1]), time.monotonic()
        if now - shown > LOG_SECONDS or done == total:
            rate = done / (now - started)
            log.info("%s: %d/%d images, %.0f s left", title, done, total, (total - done) / rate)
            shown = now
