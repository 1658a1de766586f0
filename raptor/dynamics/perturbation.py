"""Self-correction: what becomes, over depth, of noise put on a state (paper §5).

Each token x of the state of one layer is moved by noise of norm ε‖x‖ in a direction that is
uniform on the sphere; the model then continues from the moved and from the unmoved state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from raptor.dynamics.directions import angle, unit
from raptor.tokens import TokenLayout

Step = Callable[[Tensor, int], Tensor]  # state (B, T, D) of layer l − 1, and l -> state of layer l


def noise_directions(seeds: Sequence[int], tokens: int, width: int) -> Tensor:
    """(B, T, D) float32 on the CPU: unit vectors, uniform on the sphere; one seed per image."""
    gaussian = [
        torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed)) for seed in seeds
    ]
    return torch.nn.functional.normalize(torch.stack(gaussian), dim=-1)


def perturbed(state_BTD: Tensor, noise_BTD: Tensor, relative_size: float) -> Tensor:
    """The state with `relative_size` · ‖x‖ · noise added to each token x."""
    norm_BT1 = torch.linalg.vector_norm(state_BTD, dim=-1, keepdim=True)
    return state_BTD + relative_size * norm_BT1 * noise_BTD


def deviations(
    step: Step,
    state_BTD: Tensor,
    noise_BTD: Tensor,
    relative_sizes: Sequence[float],
    layers: range,
    layout: TokenLayout,
) -> Tensor:
    """(E, n, B, K): angle (rad) between perturbed and unperturbed tokens, mean over each type.

    By relative size, layer of `layers` (from the perturbed one, whose state is given, to the
    last), image and token type of the layout. The unperturbed states are computed along with
    the others, not read: what the store rounds off would otherwise count as noise.
    """
    noisy = [perturbed(state_BTD, noise_BTD, size) for size in relative_sizes]
    states_EBTD = torch.stack([state_BTD, *noisy])
    found = []
    for layer in layers:
        if layer > layers.start:
            stepped = step(states_EBTD.flatten(0, 1), layer)
            states_EBTD = stepped.unflatten(0, states_EBTD.shape[:2])
        own_EBTD = unit(states_EBTD)
        angle_EBT = angle(own_EBTD[1:], own_EBTD[:1])
        parts = [angle_EBT[..., span].mean(dim=-1) for span in layout.slices().values()]
        found.append(torch.stack(parts, dim=-1))
    return torch.stack(found, dim=1)
