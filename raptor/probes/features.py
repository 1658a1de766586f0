"""What a linear classifier sees of a state: `[cls ; mean patch]` after the final norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from raptor.errors import RaptorError
from raptor.tokens import TokenLayout

if TYPE_CHECKING:
    from raptor.teachers.adapter import Teacher


def pool(normed_BTD: Tensor, layout: TokenLayout) -> Tensor:
    """`[cls ; mean patch]` (B, 2D) of normed tokens; without cls the mean patch (B, D)."""
    patches_BD = normed_BTD[:, layout.slices()["patches"]].mean(dim=1)
    if not layout.cls:
        return patches_BD
    return torch.cat([normed_BTD[:, 0], patches_BD], dim=1)


def pooled_features(teacher: Teacher, state_BTD: Tensor) -> np.ndarray:
    """Features (B, F), float32, of the last state a_L through the teacher's final norm (paper §6).

    `state_BTD` is the teacher's own a_L or a student's. Raises RaptorError if any is not finite.
    """
    features_BF = pool(teacher.normed(state_BTD), teacher.layout).float()
    if not torch.isfinite(features_BF).all():
        raise RaptorError(
            "the last state has values that are not finite, so no probe can read it; train the "
            "model that made it again with a lower learning rate (lr)"
        )
    return features_BF.cpu().numpy()
