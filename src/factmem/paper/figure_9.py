"""Figure 9: as Figure 4, left, with as many answers per relation as there are subjects."""

from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.registry import register_figure
from factmem.paper.transformer_figures import (
    OUR_ALLOCATION,
    TransformerGrid,
    TransformerLine,
    all_shapes,
    transformer_figure,
)

__all__ = ["figure_9"]

GRID = TransformerGrid(
    quick=TransformerLine(1.0, 1.0, scaling="d=s=r"),
    quick_dims=(16, 32, 24, 12),
    paper=all_shapes(8, "d=s=r"),
)


@register_figure("9", order=(9,))
def figure_9(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of facts against parameters, D = S = R."""
    return transformer_figure(
        "9",
        f"Figure 9: facts against parameters, D = S = R, H = {GRID.heads(scale)}",
        "With D = 8 a relation has few answers, and each occurs often. Here nearly every fact has "
        "its own answer, so each fact carries more bits; fewer facts are stored, but their number "
        "still grows about as parameters do.",
        GRID,
        scale,
        remark=OUR_ALLOCATION,
    )
