"""Figure 8: as Figure 4, left, with many more subjects than relations."""

from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.registry import register_figure
from factmem.paper.transformer_figures import (
    OUR_ALLOCATION,
    TransformerGrid,
    TransformerLine,
    all_shapes,
    transformer_figure,
)

__all__ = ["figure_8"]

GRID = TransformerGrid(
    quick=TransformerLine(1.0, 1.0, scaling="s=r2"),
    quick_dims=(16, 32, 24, 12),
    paper=all_shapes(16, "s=r2"),
)
"""That the authors used 16 heads for S = R² is known from the name of a file."""


@register_figure("8", order=(8,))
def figure_8(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of facts against parameters, S = R²."""
    return transformer_figure(
        "8",
        f"Figure 8: facts against parameters, S = R², H = {GRID.heads(scale)}",
        "Real tables have more subjects than relations. With S = R² the heads must distinguish "
        "many more subjects for the same number of facts; facts still grow about as parameters do.",
        GRID,
        scale,
        remark=OUR_ALLOCATION,
    )
