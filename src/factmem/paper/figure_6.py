"""Figure 6: with a fixed number of outputs an MLP stores N associations when m·d exceeds N."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.memory_lines import (
    AUTHORS_SEEDS,
    QUICK_DIMS,
    QUICK_SEEDS,
    dashed,
    half_powers,
    law,
    mlp_lines,
    mlp_ran,
)
from factmem.paper.stored_facts import stored_facts_figure
from factmem.plotting.plot import Axis

__all__ = ["figure_6"]

_OUTPUTS = 32
_DIMS = {"quick": QUICK_DIMS, "paper": half_powers(3, 6.5)}
_FITTED = {
    "quick": ((8, 32), (8, 128)),
    "paper": tuple((dim, dim) for dim in half_powers(3, 5.5)),
}
"""d and m."""
_WIDTHS = {"quick": (1,), "paper": (1, 2, 4, 8)}
_SEEDS = {"quick": QUICK_SEEDS, "paper": AUTHORS_SEEDS}


def figure_6(scale: FigureScale = "quick") -> PaperFigure:
    """Associations with 32 outputs that MLPs store, against m·d."""
    dims, seeds, widths = _DIMS[scale], _SEEDS[scale], _WIDTHS[scale]
    return stored_facts_figure(
        "6",
        "Figure 6: MLP associative memory with 32 outputs",
        told="The logarithm in Figure 1 is the price of telling ever more outputs apart. With 32 "
        "outputs, however many inputs there are, it goes away: N itself grows as m·d.",
        lines=mlp_lines(widths, dims, _FITTED[scale], _OUTPUTS, seeds, scale),
        axes=(Axis("m·d, half of the MLP's weights", "log"), Axis("associations stored, N", "log")),
        size=lambda problem: float(problem.width * problem.dim),
        law=law("N", "m·d"),
        reference=dashed("authors' line, m·d = 1.2 N", (50, 50000), 1.2, logarithm=False),
        ran=f"As Figure 1, right, with {_OUTPUTS} outputs, f(x) = ⌊{_OUTPUTS}x/N⌋. "
        + mlp_ran(dims, widths, seeds, scale),
        unless=f"At d = 8 there are more outputs than dimensions by a factor of {_OUTPUTS // 8}, "
        "which small MLPs pay for.",
    )
