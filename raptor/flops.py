"""FLOPs, parameters and memory of a teacher and of its Raptors, from their shapes alone.

T tokens, D width, H hidden units of the MLP, L layers; FLOPs are those of matrix products and
convolutions, a multiplication and an addition counting as 2.

    block, one image          2 T (4 D² + products of the MLP) + 4 T² D
                              the MLP: 2 D H; a SwiGLU of 4D units: 12 D²
    teacher, one image        embedding + L blocks
    a training step           3 x forward x batch             (the backward pass costs two)
    teacher forcing           2 L - k blocks a step while 0 < λ < 1, else L
"""

from __future__ import annotations

import math

from raptor.config.data import DataConfig
from raptor.config.shape import Shape, block_parameters
from raptor.config.students import Recipe, Stage, Stage1
from raptor.config.teachers import conv_stem_layers
from raptor.tokens import TokenLayout

BACKWARD = 2  # forward passes that a backward pass costs
FLOAT = 4  # bytes
OPTIMISER = 4  # weights, gradients and AdamW's two moments


def layout_of(shape: Shape, data: DataConfig) -> TokenLayout:
    side = data.image_size // shape.patch_size
    return TokenLayout(cls=shape.cls, registers=shape.registers, patches=side * side)


def block_flops(tokens: int, width: int, mlp: int) -> int:
    """Of one image in one block; `mlp`: multiplications per token of its MLP."""
    return 2 * tokens * (4 * width**2 + mlp) + 4 * tokens**2 * width


def embedding_flops(shape: Shape, data: DataConfig) -> int:
    """Of one image: one patch-sized convolution, or the 3×3 ones of the stem."""
    if shape.stem == "patch":
        patches = layout_of(shape, data).patches
        return 2 * patches * shape.patch_size**2 * data.channels * shape.width
    depth = conv_stem_layers(data.image_size, shape.patch_size)
    widths = [data.channels, *(shape.width // 2 ** (depth - 1 - i) for i in range(depth))]
    sides = [-(-data.image_size // 2 ** (i + 1)) for i in range(depth)]
    return sum(18 * side**2 * widths[i] * widths[i + 1] for i, side in enumerate(sides))


def teacher_flops(shape: Shape, data: DataConfig) -> int:
    """Forward pass of one image from pixels to a_L, without the head."""
    mlp = shape.mlp_products
    blocks = shape.depth * block_flops(layout_of(shape, data).total, shape.width, mlp)
    return embedding_flops(shape, data) + blocks


def raptor_flops(recipe: Recipe, shape: Shape, data: DataConfig) -> int:
    """One application of a Raptor's block to one image, without depth scaling."""
    mlp = 12 * shape.width**2 if recipe.block == "swiglu" else shape.mlp_products
    return block_flops(layout_of(shape, data).total, shape.width, mlp)


def teacher_parameters(shape: Shape) -> int:
    """Of the L blocks."""
    return shape.depth * shape.block_parameters


def raptor_parameters(recipe: Recipe, shape: Shape, k: int) -> int:
    """Of k blocks, depth scaling (1 -> 16 -> 3D) included."""
    width, one = shape.width, shape.block_parameters
    if recipe.block == "swiglu":
        one = block_parameters(width, 8 * width, 4 * width, True)
    return k * (one + (32 + 16 * 3 * width + 3 * width) * recipe.depth_scaling)


def step_applications(stage: Stage, depth: int, k: int) -> int:
    """Block applications per image over all steps of a stage, forward."""
    if not isinstance(stage, Stage1):
        return stage.steps * depth
    # Both terms are computed where 0 < λ < 1: strictly between the ends, or at one inside.
    forcing, annealed = stage.teacher_forcing, math.ceil(stage.teacher_forcing.anneal * stage.steps)
    first, last = 0 < forcing.start < 1, 0 < forcing.end < 1
    both = (stage.steps - annealed) * last
    if annealed:
        both += first + (annealed - 1) * (first or last or forcing.start != forcing.end)
    return stage.steps * depth + both * (depth - k)


def activation_floats(width: int, mlp_floats: int) -> int:
    """Floats per token that one block keeps for its backward pass.

    The state, both normed states, q, k, v, the attention's output twice (in and out of the
    kernel's order), the state in the middle: 9 D; and of the MLP its hidden units before and
    after the activation.
    """
    return 9 * width + mlp_floats


def training_memory(
    parameters: int, batch_tokens: int, depth: int, width: int, mlp_floats: int, states: int = 0
) -> float:
    """Bytes of weights, gradients, moments, kept activations, and `states` per token and batch."""
    kept = batch_tokens * (depth * activation_floats(width, mlp_floats) + states * width)
    return FLOAT * (OPTIMISER * parameters + kept)
