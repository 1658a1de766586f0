"""How near predicted states are to the true ones: R² and the ε of the block-recurrent hypothesis.

Everything is accumulated block of images by block of images, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from raptor.errors import RaptorError
from raptor.tokens import TokenLayout

CONFIDENCE = (2.5, 97.5)  # percentiles of a 95 % interval


def as_float64(values: Tensor) -> Tensor:
    """Double precision on the same device, or on the CPU where the device has none (mps)."""
    return (values.cpu() if values.device.type == "mps" else values).double()


@dataclass
class Moments:
    """Count, mean vector and total squared deviation of rows that come in blocks.

    Each block is centred by itself and merged pairwise, so that a mean that is large beside
    the spread costs no precision (Chan, Golub & LeVeque 1983).
    """

    count: int = 0
    mean_D: Tensor | float = 0.0
    deviation: float = 0.0  # Σ ‖row − mean‖²

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of rows together."""
        count = self.count + other.count
        delta_D = torch.as_tensor(other.mean_D - self.mean_D)
        between = float(delta_D.square().sum()) * self.count * other.count / count
        return Moments(
            count=count,
            mean_D=self.mean_D + delta_D * (other.count / count),
            deviation=self.deviation + other.deviation + between,
        )

    @classmethod
    def of(cls, rows_ND: Tensor) -> Moments:
        mean_D = rows_ND.mean(dim=0)
        return cls(len(rows_ND), mean_D, float((rows_ND - mean_D).square().sum()))


@dataclass
class Fidelity:
    """Errors of predicted states, layers 1..L, per token type and over all tokens.

    Kept in memory: a mean vector per layer and token type, and per image the squared error and
    squared norm of each layer and token type (48 bytes an image and layer).
    """

    layout: TokenLayout
    depth: int
    _moments: dict[tuple[int, str], Moments] = field(default_factory=dict)
    _squares: list[np.ndarray] = field(default_factory=list)  # each (2, B, L, token types)

    def update(self, states_BLTD: Tensor, predicted_BLTD: Tensor) -> None:
        """Add a block of images: the true states a_1..a_L and the predicted ones.

        Raises RaptorError when a prediction is not finite.
        """
        spans = self.layout.slices()
        squares = np.empty((2, len(states_BLTD), self.depth, len(spans)))
        for index in range(self.depth):
            true_BTD = as_float64(states_BLTD[:, index])
            error_BTD = as_float64(predicted_BLTD[:, index]) - true_BTD
            for column, (tokens, span) in enumerate(spans.items()):
                part_BTD = true_BTD[:, span]
                for row, values in enumerate((error_BTD[:, span], part_BTD)):
                    squares[row, :, index, column] = values.square().sum(dim=(1, 2)).cpu().numpy()
                block = Moments.of(part_BTD.flatten(0, 1))
                self._moments[index, tokens] = self._moments.get((index, tokens), Moments()).merge(
                    block
                )
        if not np.isfinite(squares).all():
            layer = 1 + int(np.argwhere(~np.isfinite(squares))[0, 2])
            raise RaptorError(
                f"the state of layer {layer} or its prediction is not finite; train the model "
                "that made it again with a lower learning rate (lr)"
            )
        self._squares.append(squares)

    def mean_squared_errors(self) -> dict[str, np.ndarray]:
        """Token type -> mean squared error over images, tokens and width, shape (L,)."""
        error_LK = np.concatenate(self._squares, axis=1)[0].mean(axis=0)
        width = len(next(iter(self._moments.values())).mean_D)
        return {
            tokens: error_LK[:, column] / ((span.stop - span.start) * width)
            for column, (tokens, span) in enumerate(self.layout.slices().items())
        }

    @property
    def images(self) -> int:
        return sum(block.shape[1] for block in self._squares)

    def r2(self) -> dict[str, np.ndarray]:
        """Token type (and `all`) -> R² of layers 1..L, shape (L,), at most 1.

        1 − SSE/SST over images × tokens × width. SST is about the mean vector over the images
        and tokens concerned, of that layer. NaN where the true states do not vary.
        """
        residual = np.concatenate(self._squares, axis=1)[0].sum(axis=0)  # (L, token types)
        names = list(self.layout.slices())
        found = {
            tokens: np.array(
                [self._moments[index, tokens].deviation for index in range(self.depth)]
            )
            for tokens in names
        }
        total = {"all": self._deviation_of_all(names), **found}
        sse = {"all": residual.sum(axis=1), **dict(zip(names, residual.T, strict=True))}
        return {
            tokens: 1 - np.divide(sse[tokens], sst, out=np.full(self.depth, np.nan), where=sst > 0)
            for tokens, sst in total.items()
        }

    def _deviation_of_all(self, names: list[str]) -> np.ndarray:
        merged = []
        for index in range(self.depth):
            whole = Moments()
            for tokens in names:
                whole = whole.merge(self._moments[index, tokens])
            merged.append(whole.deviation)
        return np.array(merged)

    def norms(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Per image ‖a_l − ã_l‖_F and ‖a_l‖_F: token type (and `all`) -> (N, L) each."""
        squares = np.concatenate(self._squares, axis=1)
        parts = [*self.layout.slices()]
        error, norm = (
            {"all": np.sqrt(s.sum(axis=2))} | {t: np.sqrt(s[:, :, i]) for i, t in enumerate(parts)}
            for s in squares
        )
        return error, norm

    def table(self, *, resamples: int, seed: int) -> pd.DataFrame:
        """One row per layer and token type: `layer, tokens, r2, epsilon, …_low, …_high, norm`.

        `epsilon` is the mean over images of ‖a_l − ã_l‖_F, in the units of the states, with the
        95 % percentile interval of a bootstrap over images; `norm` is the mean of ‖a_l‖_F.
        """
        r2, (errors, norms) = self.r2(), self.norms()
        layers = np.arange(1, self.depth + 1)
        intervals = bootstrap_mean(errors, resamples=resamples, seed=seed)
        return pd.concat(
            [
                pd.DataFrame(
                    {
                        "layer": layers,
                        "tokens": tokens,
                        "r2": r2[tokens],
                        "epsilon": errors[tokens].mean(axis=0),
                        "epsilon_low": intervals[tokens][0],
                        "epsilon_high": intervals[tokens][1],
                        "norm": norms[tokens].mean(axis=0),
                    }
                )
                for tokens in errors
            ],
            ignore_index=True,
        )


def bootstrap_mean(
    values: Mapping[str, np.ndarray], *, resamples: int, seed: int
) -> dict[str, np.ndarray]:
    """95 % percentile interval (2, L) of the mean over rows (images) of each (N, L) array.

    Every array and column sees the same resampled images.
    """
    rng = np.random.default_rng(seed)
    count = len(next(iter(values.values())))
    means: dict[str, list[np.ndarray]] = {name: [] for name in values}
    for _ in range(resamples):
        weight_N = np.bincount(rng.integers(count, size=count), minlength=count) / count
        for name, array in values.items():
            means[name].append(weight_N @ array)
    return {name: np.percentile(rows, CONFIDENCE, axis=0) for name, rows in means.items()}
