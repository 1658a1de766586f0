"""Class basins: where the directions of the classes gather over depth (Fig. 6).

Of each image one token is followed, on the unit sphere: cls, or the mean patch where there is
no cls token. The centroid of a class is the direction of the sum of its tokens' directions.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from raptor.dynamics.directions import unit
from raptor.tokens import TokenLayout

# Cosines this close are one distance: before the first block every cls token is the same.
TIE = 1e-12


def class_token(states_BSTD: Tensor, layout: TokenLayout) -> Tensor:
    """x̂ (B, S, D) of the cls token, else of the mean patch."""
    if layout.cls:
        return unit(states_BSTD[:, :, 0])
    return unit(states_BSTD[:, :, layout.slices()["patches"]].mean(dim=2))


class ClassSums:
    """Streamed sums of unit vectors by class and layer, (C, S, D)."""

    def __init__(self, classes: int) -> None:
        self.counts_C = torch.zeros(classes, dtype=torch.long)
        self._sums_CSD: Tensor | None = None

    def add(self, tokens_BSD: Tensor, labels_B: Tensor) -> None:
        """Add the unit vectors of a block of images."""
        if self._sums_CSD is None:
            self._sums_CSD = tokens_BSD.new_zeros(len(self.counts_C), *tokens_BSD.shape[1:])
        self._sums_CSD.index_add_(0, labels_B.to(tokens_BSD.device), tokens_BSD)
        self.counts_C += torch.bincount(labels_B.cpu(), minlength=len(self.counts_C))

    def means(self) -> Tensor:
        """(C, S, D), shorter than 1 where a class is spread; NaN for a class without images."""
        return self._sums_CSD / self.counts_C[:, None, None].to(self._sums_CSD.device)

    def centroids(self) -> Tensor:
        """(C, S, D) on the unit sphere; NaN for a class without images."""
        return unit(self.means())


class Basins:
    """Angles from tokens to the centroids (C, S, D) of their own class and of the others."""

    def __init__(self, centroids_CSD: Tensor) -> None:
        self._centroids_CSD = centroids_CSD
        self._sums_S: dict[str, Tensor] = {}
        self._counts_S: dict[str, Tensor] = {}

    def add(self, tokens_BSD: Tensor, labels_B: Tensor) -> None:
        """Add the unit vectors of a block of images."""
        cosine_BSC = torch.einsum("bsd,csd->bsc", tokens_BSD, self._centroids_CSD)
        angle_BSC = cosine_BSC.clamp(-1, 1).arccos()  # off by 1e-8 rad near 0, which means bear
        classes = torch.arange(cosine_BSC.shape[-1], device=cosine_BSC.device)
        own_B1C = (labels_B.to(classes.device)[:, None] == classes)[:, None]
        self._note("within_angle", angle_BSC.where(own_B1C, torch.nan))
        self._note("between_angle", angle_BSC.where(~own_B1C, torch.nan).nanmean(dim=-1))
        cosine_BSC = cosine_BSC.nan_to_num(nan=-2.0)  # a class without centroid is never nearest
        nearest_BSC = cosine_BSC >= cosine_BSC.amax(dim=-1, keepdim=True) - TIE
        share_BSC = nearest_BSC / nearest_BSC.sum(dim=-1, keepdim=True, dtype=tokens_BSD.dtype)
        right_BS = (share_BSC * own_B1C).sum(dim=-1)
        alone = cosine_BSC.shape[-1] == 1  # nothing to be told apart
        self._note(
            "nearest_centroid_accuracy", torch.full_like(right_BS, torch.nan) if alone else right_BS
        )

    def _note(self, name: str, values: Tensor) -> None:
        """Add values (B, S, …) to the mean over all but S; NaN does not count."""
        values_NS = values.movedim(1, -1).flatten(0, -2)
        self._sums_S[name] = self._sums_S.get(name, 0) + values_NS.nansum(dim=0)
        self._counts_S[name] = self._counts_S.get(name, 0) + values_NS.isfinite().sum(dim=0)

    def table(self) -> pd.DataFrame:
        """One row per state 0..L.

        `within_angle` and `between_angle`: mean over images of the angle (rad) to the centroid
        of the own class, and of the mean angle to the others'. `nearest_centroid_accuracy`: share
        of images, in [0, 1], whose own centroid is the nearest; a tie among m counts 1/m. NaN, as
        the angle to others, with one class alone.
        """
        means = {name: (s / self._counts_S[name]).tolist() for name, s in self._sums_S.items()}
        table = pd.DataFrame(means)
        table.insert(0, "layer", range(len(table)))
        return table


class Plane:
    """The two principal directions of class means (C, D), centred; classes that are NaN left out.

    One plane for all models and layers, so that their trajectories can be drawn together. Each
    axis points to where its largest coefficient is positive.
    """

    def __init__(self, means_CD: Tensor) -> None:
        means_CD = means_CD[means_CD.isfinite().all(dim=1)]
        self.origin_D = means_CD.mean(dim=0)
        centred_CD = means_CD - self.origin_D
        axes_D2 = torch.linalg.eigh(centred_CD.mT @ centred_CD).eigenvectors[:, -2:].flip(-1)
        largest_12 = axes_D2.gather(0, axes_D2.abs().argmax(dim=0, keepdim=True))
        self.axes_D2 = axes_D2 * largest_12.sign()

    def trajectories(self, sums: ClassSums) -> pd.DataFrame:
        """`label, layer, x, y, n`: class means by state 0..L; classes without images left out."""
        points_CS2 = ((sums.means() - self.origin_D) @ self.axes_D2).tolist()
        return pd.DataFrame(
            [
                {"label": label, "layer": layer, "x": x, "y": y, "n": n}
                for label, n in enumerate(sums.counts_C.tolist())
                if n
                for layer, (x, y) in enumerate(points_CS2[label])
            ]
        )
