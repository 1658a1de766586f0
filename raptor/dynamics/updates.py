"""What a block adds: the rank of its update and how far its tokens agree (Fig. 8).

The update of layer l is U_l = a_l − a_{l−1}, one row per token. With σ its singular values:

- stable rank ‖U‖_F² / ‖U‖_2² = Σσ² / max σ²
- participation ratio (Σσ²)² / Σσ⁴
- effective rank exp(H), H the entropy of σ² / Σσ² (Roy & Vetterli 2007, on squares)

1 ≤ stable rank ≤ participation ratio ≤ effective rank ≤ rank: they are Rényi entropies of order
∞, 2 and 1 of the same distribution.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from raptor.dynamics.directions import mean_by_type, token_types, unit
from raptor.fidelity import as_float64
from raptor.tokens import TokenLayout

RANKS = ("stable_rank", "effective_rank", "participation_ratio")


def updates(states_BSTD: Tensor, layout: TokenLayout) -> dict[str, np.ndarray]:
    """Per image, state 0..L and token type (B, S, K): `coherence` and the three ranks.

    The values at l describe U_l, what block l does; NaN at state 0. K is in the order of
    `token_types`. A type of a single token has no rank (NaN), and neither has a zero update.
    """
    found = [_measures(update_BTD, layout) for _, update_BTD in layer_updates(states_BSTD)]
    measures_BLKM = torch.stack(found, dim=1).cpu().numpy()
    before = np.full_like(measures_BLKM[:, :1], np.nan)
    measures_BSKM = np.concatenate([before, measures_BLKM], axis=1)
    return dict(zip(("coherence", *RANKS), np.moveaxis(measures_BSKM, -1, 0), strict=True))


def layer_updates(states_BSTD: Tensor) -> Iterator[tuple[int, Tensor]]:
    """`(l, U_l)`, l = 1..L, with U_l (B, T, D) in float64."""
    before_BTD = as_float64(states_BSTD[:, 0])
    for layer in range(1, states_BSTD.shape[1]):
        now_BTD = as_float64(states_BSTD[:, layer])
        yield layer, now_BTD - before_BTD
        before_BTD = now_BTD


def _measures(update_BTD: Tensor, layout: TokenLayout) -> Tensor:
    """(B, K, 4): coherence and ranks of one layer."""
    ranks = []
    for span in token_types(layout).values():
        part_BTD = update_BTD[:, span]
        ranks_B3 = rank_measures(squared_singular_values(part_BTD))
        ranks.append(ranks_B3 if part_BTD.shape[1] > 1 else torch.full_like(ranks_B3, torch.nan))
    coherence_BK = mean_by_type(coherence(update_BTD, layout), layout)
    # `all` is compared with the mean of all tokens, not with the means of their types.
    mean_B1D = unit(update_BTD.mean(dim=1, keepdim=True))
    coherence_BK[:, 0] = (unit(update_BTD) * mean_B1D).sum(dim=-1).mean(dim=1)
    return torch.cat([coherence_BK[..., None], torch.stack(ranks, dim=1)], dim=-1)


def coherence(update_BTD: Tensor, layout: TokenLayout) -> Tensor:
    """κ of each token (B, T) in [-1, 1]: cosine of its update and the mean update of its type.

    The mean is over the tokens of the same type in the same image. A type of a single token, as
    cls is, would be compared with itself: there the mean over the patches takes its place.
    """
    patches_BTD = update_BTD[:, layout.slices()["patches"]]
    cosines = []
    for span in layout.slices().values():
        part_BTD = update_BTD[:, span]
        peers_BTD = part_BTD if part_BTD.shape[1] > 1 else patches_BTD
        reference_B1D = unit(peers_BTD.mean(dim=1, keepdim=True))
        cosines.append((unit(part_BTD) * reference_B1D).sum(dim=-1))
    return torch.cat(cosines, dim=1)


def squared_singular_values(matrices: Tensor) -> Tensor:
    """σ² (…, min(T, D)) of matrices (…, T, D), from the smaller of the two Gram matrices."""
    rows, columns = matrices.shape[-2:]
    gram = matrices @ matrices.mT if rows <= columns else matrices.mT @ matrices
    return torch.linalg.eigvalsh(gram).clamp(min=0)


def rank_measures(squares: Tensor) -> Tensor:
    """(…, 3), in the order of `RANKS`, from σ² (…, m) in any order; NaN where all are 0."""
    share = squares / squares.sum(dim=-1, keepdim=True)
    stable = 1 / share.amax(dim=-1)
    effective = torch.special.entr(share).sum(dim=-1).exp()
    participation = 1 / share.square().sum(dim=-1)
    return torch.stack([stable, effective, participation], dim=-1)


class PooledUpdates:
    """Σ U_lᵀ U_l over images, (L, types, D, D) in float64, about zero: the ranks of all rows."""

    def __init__(self, layout: TokenLayout) -> None:
        self.layout = layout
        self.images = 0
        self._moments: dict[tuple[int, str], Tensor] = {}

    def add(self, states_BSTD: Tensor) -> None:
        """Add a block of images with their states a_0..a_L."""
        self.images += len(states_BSTD)
        for layer, update_BTD in layer_updates(states_BSTD):
            for tokens, span in self.layout.slices().items():
                rows_ND = update_BTD[:, span].flatten(0, 1)
                moment_DD = rows_ND.mT @ rows_ND
                self._moments[layer, tokens] = self._moments.get((layer, tokens), 0) + moment_DD

    def table(self) -> pd.DataFrame:
        """`layer` (1..L), `tokens` (`all` too), the ranks, and `n`, the number of images."""
        rows = []
        for layer in sorted({layer for layer, _ in self._moments}):
            parts = {tokens: self._moments[layer, tokens] for tokens in self.layout.slices()}
            for tokens, moment_DD in {"all": sum(parts.values()), **parts}.items():
                squares_D = torch.linalg.eigvalsh(moment_DD).clamp(min=0)
                ranks = dict(zip(RANKS, rank_measures(squares_D).tolist(), strict=True))
                rows.append({"layer": layer, "tokens": tokens, **ranks, "n": self.images})
        return pd.DataFrame(rows)
