"""Figure 9: as Figure 4, left, with as many answers a relation as there are subjects."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.transformer_figures import transformer_figure
from factmem.paper.transformer_lines import PAPER_LINES, QUICK_LINES

__all__ = ["figure_9"]


def figure_9(scale: FigureScale = "quick") -> PaperFigure:
    """Facts against parameters, D = S = R."""
    line = QUICK_LINES["9"] if scale == "quick" else PAPER_LINES["9"][0]
    return transformer_figure(
        "9",
        f"Figure 9: facts against parameters, D = S = R, H = {line.heads}",
        "With D = 8 a relation's answers are few and come again and again. Here nearly every fact "
        "has an answer of its own, so that facts carry more bits; they are fewer, and still grow "
        "about as parameters do.",
        scale,
    )
