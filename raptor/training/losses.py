"""The losses of both training stages.

Every loss here is a sum over layers and tokens of an error times a fixed weight. The error of a
layer and token is the squared difference of prediction and teacher, averaged over batch and width;
the weights (L, T) hold the average over layers, the token weights and the scale of each layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from raptor.config.students import Stage, Stage2, TokenWeights
from raptor.errors import RaptorError
from raptor.models.raptor import Raptor, Run
from raptor.tokens import TokenLayout


def token_errors(predicted_BTD: torch.Tensor, target_BTD: torch.Tensor) -> torch.Tensor:
    """Squared error of each token (T,), mean over batch and width; leading axes are kept."""
    # This way the gradient is one pass over the batch, where `square` and `mean` take five.
    target_BTD = target_BTD.expand_as(predicted_BTD)
    squared = F.mse_loss(predicted_BTD, target_BTD, reduction="none")
    return squared.sum(dim=(-3, -1)) / (predicted_BTD.shape[-3] * predicted_BTD.shape[-1])


def token_average(layout: TokenLayout, weights: TokenWeights | None) -> dict[str, torch.Tensor]:
    """Token set -> weights (T,) that average over it; together they sum to 1.

    Without `weights` there is one set, `all`. With them there is one for each token type that the
    layout has: its share of the weight, spread evenly over its tokens. The shares are
    renormalised over the types that are there; RaptorError where none of those has any weight.
    """
    if weights is None:
        return {"all": torch.full((layout.total,), 1 / layout.total)}
    slices = layout.slices()
    given = {name: getattr(weights, name) for name in slices}
    total = sum(given.values())
    if total == 0:
        raise RaptorError(
            f"token_weights: no weight on any token of this teacher, it has {list(slices)} only; "
            "give one of those a weight above 0"
        )
    averages = {}
    for name, span in slices.items():
        averages[name] = torch.zeros(layout.total)
        averages[name][span] = given[name] / total / (span.stop - span.start)
    return averages


def loss_weights(
    labels: Sequence[int],
    layout: TokenLayout,
    stage: Stage,
    mean_square_LT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Weights (L, T) of the errors of each layer; each row averages over tokens.

    `weighted_layers: last_segment` gives `stage.token_weights` to the layers of the block that
    makes layer L, and a plain mean over tokens to the others (paper §Method 4).

    With `mean_square_LT`, the mean square of the teacher's states by layer and token over images
    and width, the average error over a set of tokens is divided by the mean square of the states
    over the same set: one unit is the error of predicting zero.

    With `target: output` the layers before L have weight 0 and layer L has L times its own, so
    that the mean over layers is the error of layer L (output distillation, paper Fig. 10).
    """
    rows = []
    for layer, label in enumerate(labels):
        is_weighted = stage.weighted_layers == "all" or label == labels[-1]
        sets = token_average(layout, stage.token_weights if is_weighted else None)
        if mean_square_LT is not None:
            square_T = mean_square_LT[layer]
            sets = {
                name: row / square_T[row > 0].mean() if row.any() else row
                for name, row in sets.items()
            }
        rows.append(sum(sets.values()))
    if isinstance(stage, Stage2) and stage.target == "output":
        return torch.stack([*(torch.zeros_like(row) for row in rows[:-1]), len(rows) * rows[-1]])
    return torch.stack(rows)


def mean_square(states_BSTD: torch.Tensor) -> torch.Tensor:
    """Mean square (L, T) of the states 1..L of a batch, by layer and token."""
    return states_BSTD[:, 1:].square().mean(dim=(0, 3))


def stage1_losses(
    raptor: Raptor, states_BSTD: torch.Tensor, weights_LT: torch.Tensor, forcing: float
) -> torch.Tensor:
    """Stage 1 loss of each block (k,): λ · TF + (1 − λ) · AR, mean over the block's layers.

    Each block works alone on its runs of layers, from the teacher's true state before the run:
    teacher-forced (TF) it gets the teacher's state before each layer, autoregressive (AR) its own
    (paper §Method 4). `states_BSTD` holds a_0..a_L, `forcing` is λ in [0, 1].
    """
    losses: list[torch.Tensor | float] = [0.0] * len(raptor.blocks)
    for run in raptor.runs():
        layers = slice(run.first - 1, run.last)
        errors_LT = run_errors(raptor, run, states_BSTD, forcing)
        losses[run.block] = losses[run.block] + (errors_LT * weights_LT[layers]).sum()
    return torch.stack([loss / raptor.labels.count(block) for block, loss in enumerate(losses)])


def run_errors(raptor: Raptor, run: Run, states_BSTD: torch.Tensor, forcing: float) -> torch.Tensor:
    """λ · TF + (1 − λ) · AR errors (layers of the run, T).

    Both go through the block as one batch, of 2B from the second layer on: the first has the same
    input in both. A term without weight is not computed.
    """
    errors, free = [], None
    for layer in range(run.first, run.last + 1):
        before, target = states_BSTD[:, layer - 1], states_BSTD[:, layer]
        if layer == run.first or forcing == 1:
            free = raptor.step(before, layer)
            errors.append(token_errors(free, target))
        elif forcing == 0:
            free = raptor.step(free, layer)
            errors.append(token_errors(free, target))
        else:
            both = raptor.step(torch.cat([before, free]), layer).unflatten(0, (2, -1))
            free = both[1]
            forced_error, free_error = token_errors(both, target)
            errors.append(forcing * forced_error + (1 - forcing) * free_error)
    return torch.stack(errors)


def stage2_loss(
    raptor: Raptor, states_BSTD: torch.Tensor, weights_LT: torch.Tensor
) -> torch.Tensor:
    """Stage 2 loss: all blocks joined, in closed loop from a_0, mean over the L layers (§5)."""
    predicted = raptor.rollout(states_BSTD[:, 0], 1, raptor.depth)
    errors_LT = torch.stack(
        [token_errors(state, states_BSTD[:, layer]) for layer, state in enumerate(predicted, 1)]
    )
    return (errors_LT * weights_LT).sum() / raptor.depth
