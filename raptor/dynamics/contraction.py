"""The rate at which a perturbation shrinks or grows over depth; figures use it, so no torch."""

from __future__ import annotations

import numpy as np


def contraction_rate(deviations: np.ndarray) -> np.ndarray:
    """Slope (…,) of log deviation by layer, from deviations (…, n) at consecutive layers.

    Least squares; in 1 / layer: negative where trajectories bend back, and exp(rate) is the
    factor per layer. NaN from fewer than two layers or where a deviation is not above 0.
    """
    deviations = np.asarray(deviations, dtype=np.float64)
    layers = np.arange(deviations.shape[-1]) - (deviations.shape[-1] - 1) / 2
    logs = np.log(np.where(deviations > 0, deviations, np.nan))
    return logs @ layers / (layers @ layers if len(layers) > 1 else np.nan)
