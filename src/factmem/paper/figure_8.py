"""Figure 8: as Figure 4, left, with many more subjects than relations."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.transformer_figures import transformer_figure
from factmem.paper.transformer_lines import PAPER_LINES, QUICK_LINES

__all__ = ["figure_8"]


def figure_8(scale: FigureScale = "quick") -> PaperFigure:
    """Facts against parameters, S = R²."""
    line = QUICK_LINES["8"] if scale == "quick" else PAPER_LINES["8"][0]
    return transformer_figure(
        "8",
        f"Figure 8: facts against parameters, S = R², H = {line.heads}",
        "Real tables have more subjects than relations. With S = R² the heads must tell many more "
        "subjects apart for as many facts; facts still grow about as parameters do.",
        scale,
    )
