"""`teachers`: the Vision Transformers under study, by name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from raptor.config.catalogue import look_up
from raptor.config.fields import (
    InputPath,
    Name,
    NonNegativeInt,
    NonNegativeReal,
    PositiveInt,
    PositiveReal,
    Rate,
    Real,
    Section,
)
from raptor.config.shape import Shape, block_parameters


def conv_stem_layers(image_size: int, patch_size: int) -> int:
    """How many stride-2 convolutions make the grid of `patch_size`; 0 where none do."""
    for layers in range(1, image_size.bit_length()):
        if -(-image_size // 2**layers) * patch_size == image_size:
            return layers
    return 0


class Augmentation(Section):
    """Random affine map and flip of each training image; all zero means none."""

    shift_px: NonNegativeInt = 0
    rotate_deg: NonNegativeReal = 0.0
    scale: Rate = 0.0
    shear_deg: NonNegativeReal = 0.0
    flip: bool = False


class TeacherTraining(Section):
    """AdamW with linear warm-up and linear decay to zero."""

    epochs: PositiveInt
    batch_size: PositiveInt = 64
    lr: PositiveReal = 2e-3
    betas: list[Rate] = Field(default=[0.9, 0.98], min_length=2, max_length=2)
    weight_decay: NonNegativeReal = 0.05
    warmup_steps: NonNegativeInt = 200
    clip_norm: PositiveReal = 1.0
    label_smoothing: Rate = 0.0
    augmentation: Augmentation = Augmentation()
    train_images: PositiveInt | None = None  # only the first n of the train split (overfitting)
    checkpoint_epochs: list[NonNegativeInt] = []  # weights kept after these epochs (0: untrained)

    def steps_per_epoch(self, images: int) -> int:
        """Full batches in an epoch; the rest of the shuffled images waits for the next epoch."""
        return images // self.batch_size


class Architecture(Section):
    """Of a timm `VisionTransformer`, and the seed of its initial weights."""

    depth: PositiveInt
    width: PositiveInt
    heads: PositiveInt
    mlp_ratio: PositiveReal = 4.0
    patch_size: PositiveInt
    stem: Literal["patch", "conv"] = "patch"  # one patch-sized convolution, or several small ones
    registers: NonNegativeInt = 4
    stochastic_depth: Rate = 0.0  # the same drop rate at every layer
    layer_scale: PositiveReal | None = None
    seed: NonNegativeInt = 0

    @property
    def shape(self) -> Shape:
        """What its cost and its cuts follow from."""
        hidden = int(self.width * self.mlp_ratio)
        return Shape(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            patch_size=self.patch_size,
            cls=1,
            registers=self.registers,
            mlp_products=2 * self.width * hidden,
            block_parameters=block_parameters(
                self.width, hidden, hidden, self.layer_scale is not None
            ),
            stem=self.stem,
        )


class TrainedTeacher(Architecture):
    """A teacher trained here from scratch."""

    kind: Literal["trained"] = "trained"
    training: TeacherTraining


def _plain(model: str) -> str:
    look_up(model)  # which says what is wrong with it
    return model


class TimmTeacher(Section):
    """A plain Vision Transformer of timm, trained elsewhere, or with random weights.

    `weights`: `pretrained` (from the hub), `random`, or a file in the layout of timm, of DINOv2
    or of the hub; its position embedding is resampled to `data.image_size`. `head`: what
    classifies, beside the probe fitted here. `own` is the model's classifier, for as many classes
    as the data have; a file holds `weight` (classes, 2D) and `bias` on [cls; mean patch], as
    DINOv2 publishes them; with `none` the fitted probe takes its place.
    """

    kind: Literal["timm"]
    model: Annotated[str, AfterValidator(_plain)]
    weights: InputPath = "pretrained"
    head: InputPath = "none"
    mean: list[Real] | None = None  # the images' for this teacher, where not data.mean and data.std
    std: list[PositiveReal] | None = None
    seed: NonNegativeInt = 0  # of random weights

    @property
    def shape(self) -> Shape:
        """Of the model, from timm's catalogue."""
        return look_up(self.model)

    @property
    def files(self) -> dict[str, str]:
        """The files that it is made of, by the key that names them."""
        named = {"weights": self.weights, "head": self.head}
        return {key: file for key, file in named.items() if file not in WORDS}


WORDS = ("pretrained", "random", "none", "own")  # what a file cannot be called


class UntrainedTeacher(Section):
    """The initial weights of another teacher: same architecture, same seed, no step taken."""

    kind: Literal["untrained"]
    like: Name


class CheckpointTeacher(Section):
    """Another teacher as it was after `epoch`, which its `checkpoint_epochs` must list."""

    kind: Literal["checkpoint"]
    of: Name
    epoch: NonNegativeInt


Teacher = Annotated[
    TrainedTeacher | TimmTeacher | UntrainedTeacher | CheckpointTeacher, Field(discriminator="kind")
]
