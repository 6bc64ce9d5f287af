"""Figure 4, left: the facts that a transformer stores grow in proportion to its parameters."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.transformer_figures import transformer_figure

__all__ = ["figure_4_left"]


def figure_4_left(scale: FigureScale = "quick") -> PaperFigure:
    """Facts against parameters, S = R."""
    return transformer_figure(
        "4-left",
        "Figure 4, left: facts against parameters, S = R, H = 8",
        "How many facts does a transformer hold? As many as it has parameters, times a constant "
        "of a little more than a tenth: facts and parameters grow together. The compiled line "
        "shows that this is no matter of luck in training, for there every fact is certified.",
        scale,
        compiled=True,
    )
