"""What a linear classifier sees of a state: `[cls ; mean patch]` after the final norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from raptor.errors import RaptorError

if TYPE_CHECKING:
    from raptor.teachers.adapter import Teacher


def pooled_features(teacher: Teacher, state_BTD: Tensor) -> np.ndarray:
    """Features (B, F), float32, of the last state a_L through the teacher's final norm (paper §6).

    `state_BTD` is the teacher's own a_L or a student's. Raises RaptorError if any is not finite.
    """
    features_BF = teacher.pooled(state_BTD).float()
    if not torch.isfinite(features_BF).all():
        raise RaptorError(
            "the last state has values that are not finite, so no probe can read it; train the "
            "model that made it again with a lower learning rate (lr)"
        )
    return features_BF.cpu().numpy()
