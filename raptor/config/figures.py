"""`figures`: plot settings. Changing one redraws that figure and computes nothing again."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from raptor.config.fields import Name, PositiveInt, PositiveReal, Section, Some


class Picture(Section):
    """Width and resolution of one figure."""

    width_in: PositiveReal = 7.0
    dpi: PositiveInt = 200


class MatrixFigure(Picture):
    """Square panels: their number and the width give the height."""

    cmap: Literal["viridis", "cividis", "magma", "inferno", "plasma", "Greys"] = Field(
        default="viridis", description="a matplotlib colour map"
    )
    annotate: bool = Field(default=False, description="write each entry into its cell")


class Figure(Picture):
    row_height_in: PositiveReal = Field(default=2.6, description="of one row of panels")


class FidelityFigure(Figure):
    studies: Some[Name] = Field(default=["fidelity"], description="grids of students drawn")
    reference: Name | None = None  # a smaller teacher drawn as a line


class PartitionFigure(Figure):
    studies: Some[Name] = Field(default=["partitions"])


class CurvesFigure(Figure):
    studies: Some[Name] = Field(default=["fidelity"])


class FiguresConfig(Section):
    """One entry per figure; every entry may be left out."""

    similarity_matrices: MatrixFigure = MatrixFigure()
    maxcut_partitions: MatrixFigure = MatrixFigure()
    partition_comparison: PartitionFigure = PartitionFigure(row_height_in=2.8)
    fidelity_by_k: FidelityFigure = FidelityFigure(row_height_in=2.8)
    layer_swaps: Figure = Figure()
    training_curves: CurvesFigure = CurvesFigure(row_height_in=1.7)
    palette: Literal["colorblind", "tab10", "Set2", "Dark2", "Paired", "petroff10"] = Field(
        default="colorblind",
        description="a matplotlib colour sequence, or colorblind: seaborn's of that name",
    )
