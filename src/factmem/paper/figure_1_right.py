"""Figure 1, right: an MLP of m neurons stores N associations if m·d exceeds N log N."""

from factmem.paper.capacity_figure import capacity_figure
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.memory_figures import (
    AUTHORS_SEEDS,
    N_LOG_N,
    QUICK_DIMS,
    QUICK_SEEDS,
    authors_line,
    capacity_law,
    describe_mlps,
    half_powers,
    mlp_lines,
)
from factmem.paper.registry import register_figure
from factmem.plotting.plot import Axis

__all__ = ["figure_1_right"]

_DIMS = {"quick": QUICK_DIMS, "paper": half_powers(3, 6.5)}
_FITTED_SHAPES = {
    "quick": ((8, 32), (8, 128)),
    "paper": tuple((dim, dim) for dim in half_powers(3, 5.5)),
}
"""(d, m)."""
_WIDTH_RATIOS = {"quick": (1,), "paper": (1, 2, 4, 8)}
"""m/d."""
_SEEDS = {"quick": QUICK_SEEDS, "paper": AUTHORS_SEEDS}


@register_figure("1-right", order=(1, 2))
def figure_1_right(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of associations stored by MLPs against m·d."""
    dims, seeds, width_ratios = _DIMS[scale], _SEEDS[scale], _WIDTH_RATIOS[scale]
    return capacity_figure(
        "1-right",
        "Figure 1, right: MLP associative memory",
        description="An MLP is an associative memory too. With m neurons it stores associations "
        "nearly in proportion to its weights, whatever its shape: N log N grows as m·d, so a wide "
        "layer over small embeddings stores as much as a narrow one over large embeddings.",
        lines=mlp_lines(width_ratios, dims, _FITTED_SHAPES[scale], None, seeds, scale),
        axes=(Axis("m·d, half of the MLP's weights", "log"), Axis("associations stored, N", "log")),
        size=lambda problem: float(problem.width * problem.dim),
        law=capacity_law(N_LOG_N, "m·d"),
        reference=authors_line(
            "authors' line, m·d = 0.35 N ln N", (50, 19426), 0.35, logarithm=True
        ),
        setup=describe_mlps(dims, width_ratios, seeds, scale),
        explanation="Small MLPs have few neurons for so many outputs, and training does not always "
        "reach their capacity.",
    )
