"""`figures`: plot settings. Changing one redraws that figure and computes nothing again."""

from __future__ import annotations

from pydantic import Field

from raptor.config.fields import Name, PositiveInt, PositiveReal, Section


class Figure(Section):
    """Size and resolution of one figure."""

    width_in: PositiveReal = 7.0
    height_in: PositiveReal = 3.0
    dpi: PositiveInt = 200


class MatrixFigure(Figure):
    cmap: str = "viridis"
    annotate: bool = False


class FidelityFigure(Figure):
    study: Name = "fidelity"  # the grid of students drawn
    reference: Name | None = None  # a smaller teacher drawn as a line


class PartitionFigure(Figure):
    study: Name = "partitions"


class CurvesFigure(Figure):
    study: Name = "fidelity"


class FiguresConfig(Section):
    """One entry per figure; every entry may be left out."""

    similarity_matrices: MatrixFigure = MatrixFigure(height_in=5.5)
    maxcut_partitions: MatrixFigure = MatrixFigure(height_in=3.2)
    partition_comparison: PartitionFigure = PartitionFigure()
    fidelity_by_k: FidelityFigure = FidelityFigure()
    layer_swaps: Figure = Figure()
    training_curves: CurvesFigure = CurvesFigure(height_in=5.0)
    palette: str = Field(default="colorblind", description="seaborn palette of every figure")
