"""Figure 1, right: an MLP of m neurons stores N associations when m·d exceeds N log N."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.memory_lines import (
    AUTHORS_SEEDS,
    QUICK_DIMS,
    QUICK_SEEDS,
    WITH_LOGARITHM,
    dashed,
    half_powers,
    law,
    mlp_lines,
    mlp_ran,
)
from factmem.paper.stored_facts import stored_facts_figure
from factmem.plotting.plot import Axis

__all__ = ["figure_1_right"]

_DIMS = {"quick": QUICK_DIMS, "paper": half_powers(3, 6.5)}
_FITTED = {
    "quick": ((8, 32), (8, 128)),
    "paper": tuple((dim, dim) for dim in half_powers(3, 5.5)),
}
"""d and m."""
_WIDTHS = {"quick": (1,), "paper": (1, 2, 4, 8)}
_SEEDS = {"quick": QUICK_SEEDS, "paper": AUTHORS_SEEDS}


def figure_1_right(scale: FigureScale = "quick") -> PaperFigure:
    """Associations that MLPs store, against m·d."""
    dims, seeds, widths = _DIMS[scale], _SEEDS[scale], _WIDTHS[scale]
    return stored_facts_figure(
        "1-right",
        "Figure 1, right: MLP associative memory",
        told="An MLP is an associative memory too. With m neurons it stores associations nearly in "
        "proportion to its numbers, whatever the shape: N log N grows as m·d, so a wide layer "
        "over small embeddings remembers as much as a narrow one over large embeddings.",
        lines=mlp_lines(widths, dims, _FITTED[scale], None, seeds, scale),
        axes=(Axis("m·d, half of the MLP's weights", "log"), Axis("associations stored, N", "log")),
        size=lambda problem: float(problem.width * problem.dim),
        law=law(WITH_LOGARITHM, "m·d"),
        reference=dashed("authors' line, m·d = 0.35 N ln N", (50, 19426), 0.35, logarithm=True),
        ran=mlp_ran(dims, widths, seeds, scale),
        unless="Small MLPs have few neurons for so many outputs, and training does not always "
        "find what they could store.",
    )
