"""Where the states point: direction towards the last state, norm and angular speed (Figs. 6, 7).

A state's direction is x̂ = x / ‖x‖, per token. Everything is computed in float64, so differences
below the precision of the store (2⁻¹¹ of each value in float16) are rounding, not motion.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from raptor.fidelity import as_float64
from raptor.tokens import TokenLayout


def unit(states: Tensor) -> Tensor:
    """x̂ (…, D) in float64; NaN for a zero vector, which has no direction."""
    states = as_float64(states)
    return states / torch.linalg.vector_norm(states, dim=-1, keepdim=True)


def angle(unit_a: Tensor, unit_b: Tensor) -> Tensor:
    """Angle in [0, π] rad between unit vectors (…, D).

    From chord and sum: arccos loses half the digits near 0 and π (Kahan 2006).
    """
    chord = torch.linalg.vector_norm(unit_a - unit_b, dim=-1)
    return 2 * torch.atan2(chord, torch.linalg.vector_norm(unit_a + unit_b, dim=-1))


def token_types(layout: TokenLayout) -> dict[str, slice]:
    """`all` and the types that the layout has -> their part of the token axis."""
    return {"all": slice(0, layout.total), **layout.slices()}


def mean_by_type(values_BT: Tensor, layout: TokenLayout) -> Tensor:
    """(B, K): the mean over the tokens of each of `token_types`."""
    spans = token_types(layout).values()
    return torch.stack([values_BT[:, span].mean(dim=1) for span in spans], dim=1)


def directions(states_BSTD: Tensor, layout: TokenLayout) -> dict[str, np.ndarray]:
    """Per image, state 0..L and token type (B, S, K), each a mean over the tokens of the type.

    `direction`: γ_l = ⟨x̂_l, x̂_L⟩ in [-1, 1]. `norm`: ‖x_l‖, in the units of the states. `speed`:
    the angle between x̂_{l-1} and x̂_l in [0, π] rad, NaN at state 0. NaN as well where a token of
    the type is zero. K is in the order of `token_types`.
    """
    last_BTD = unit(states_BSTD[:, -1])
    rows: dict[str, list[Tensor]] = {"direction": [], "norm": [], "speed": []}
    before_BTD = torch.full_like(last_BTD, torch.nan)
    for state_BTD in states_BSTD.unbind(dim=1):
        now_BTD = unit(state_BTD)
        values = {
            "direction": (now_BTD * last_BTD).sum(dim=-1),
            "norm": torch.linalg.vector_norm(as_float64(state_BTD), dim=-1),
            "speed": angle(before_BTD, now_BTD),
        }
        for name, values_BT in values.items():
            rows[name].append(mean_by_type(values_BT, layout))
        before_BTD = now_BTD
    return {name: torch.stack(column, dim=1).cpu().numpy() for name, column in rows.items()}
