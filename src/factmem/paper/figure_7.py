"""Figure 7: as Figure 4, left, with another number of heads."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.transformer_figures import transformer_figure
from factmem.paper.transformer_lines import PAPER_LINES, QUICK_LINES

__all__ = ["figure_7"]


def figure_7(scale: FigureScale = "quick") -> PaperFigure:
    """Facts against parameters, S = R, fewer or more heads than in Figure 4."""
    line = QUICK_LINES["7"] if scale == "quick" else PAPER_LINES["7"][0]
    return transformer_figure(
        "7",
        f"Figure 7: facts against parameters, S = R, H = {line.heads}",
        "The same experiment with another number of heads, of as many dimensions together. Facts "
        "still grow as parameters do: how they are cut into heads changes the constant alone.",
        scale,
    )
