"""Figure 7: as Figure 4, left, with another number of heads."""

from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.registry import register_figure
from factmem.paper.transformer_figures import (
    OUR_ALLOCATION,
    TransformerGrid,
    TransformerLine,
    all_shapes,
    transformer_figure,
)

__all__ = ["figure_7"]

GRID = TransformerGrid(
    quick=TransformerLine(1.0, 1.0, heads=4),
    quick_dims=(16, 36, 24, 12),
    paper=all_shapes(16, "s=r"),
)


@register_figure("7", order=(7,))
def figure_7(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of facts against parameters with another number of heads, S = R."""
    return transformer_figure(
        "7",
        f"Figure 7: facts against parameters, S = R, H = {GRID.heads(scale)}",
        "The same experiment with another number of heads and the same total head dimension. Facts "
        "still grow as parameters do: the number of heads changes only the constant.",
        GRID,
        scale,
        remark=OUR_ALLOCATION,
    )
