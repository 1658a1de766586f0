"""`figures`: plot settings. Changing one redraws that figure and computes nothing again."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raptor.config.fields import Name, OneCut, PositiveInt, PositiveReal, Section, Some, Teachers


class Picture(Section):
    """Width and resolution of one figure."""

    width_in: PositiveReal = 7.0
    dpi: PositiveInt = 200


class ColourFigure(Picture):
    """Numbers as colours."""

    cmap: Literal["viridis", "cividis", "magma", "inferno", "plasma", "Greys"] = Field(
        default="viridis", description="a matplotlib colour map"
    )


class MatrixFigure(ColourFigure):
    """Square panels: their number and the width give the height."""

    annotate: bool = Field(default=False, description="write each entry into its cell")
    teachers: Teachers | None = Field(default=None, description="those drawn; all, if left out")


class CutsFigure(MatrixFigure):
    """Also says which partitions are printed in `table_partitions`."""

    k: Some[PositiveInt] | None = Field(default=None, description="as drawn; all, if left out")


class Figure(Picture):
    row_height_in: PositiveReal = Field(default=2.6, description="of one row of panels")


class FidelityFigure(Figure):
    studies: Some[Name] = Field(default=["fidelity"], description="grids of students drawn")
    reference: Name | None = None  # a smaller teacher drawn as a line


class PartitionFigure(Figure):
    row_height_in: PositiveReal = Field(default=2.8, description="of one row of panels")
    studies: Some[Name] = Field(default=["partitions"])


class CurvesFigure(Figure):
    studies: Some[Name] = Field(default=["fidelity"])


class TeachersFigure(Figure):
    """The same kind of student of several teachers, side by side."""

    teachers: Teachers
    recipe: Name
    partition: OneCut = "maxcut"
    k: PositiveInt = 3


class RecipesFigure(Figure):
    """Students of one teacher that differ in how they were trained."""

    teacher: Name
    recipes: Some[Name]
    partition: OneCut = "maxcut"
    k: PositiveInt = 3


class FiguresConfig(Section):
    """One entry per figure or printed table.

    Those with `None` are drawn where the experiment describes them, `branch_similarity` where it
    has a section `branches`, `segmentation_panels` and `depth_panels` where it has that probe in a
    section `dense`, the five from `directional_convergence` to `perturbation` where it has a
    section `dynamics`, the others always.
    """

    similarity_matrices: MatrixFigure = MatrixFigure()
    maxcut_partitions: CutsFigure = CutsFigure()
    fidelity_by_k: FidelityFigure = FidelityFigure(row_height_in=2.8)
    directional_convergence: Figure = Figure(row_height_in=2.1)
    angular_speed: Figure = Figure()
    low_rank_updates: Figure = Figure(row_height_in=1.7)
    dmd_spectrum: Figure = Figure(row_height_in=2.2)
    perturbation: Figure = Figure()
    layer_swaps: Figure = Figure()
    training_curves: CurvesFigure = CurvesFigure(row_height_in=1.7)
    scorecard: Figure = Figure(row_height_in=0.28)
    branch_similarity: MatrixFigure = MatrixFigure()
    segmentation_panels: Picture = Picture()
    depth_panels: ColourFigure = ColourFigure()
    partition_comparison: PartitionFigure | None = Field(
        default=None, description="Max-Cut against random partitions and others"
    )
    stochastic_depth: TeachersFigure | None = Field(
        default=None, description="trained teachers that differ in their stochastic_depth"
    )
    overfitting: TeachersFigure | None = Field(
        default=None, description="one teacher along its training: itself and its checkpoints"
    )
    training_paradigms: RecipesFigure | None = Field(
        default=None, description="output distillation, teacher forcing, autoregression"
    )
    table_ablations: RecipesFigure | None = Field(
        default=None, description="recipes in order, each with one thing more than the one before"
    )
    saturation: FidelityFigure | None = Field(
        default=None, description="from one block to as many as there are: does it saturate?"
    )
    palette: Literal["colorblind", "tab10", "Set2", "Dark2", "Paired", "petroff10"] = Field(
        default="colorblind",
        description="a matplotlib colour sequence, or colorblind: seaborn's of that name",
    )
