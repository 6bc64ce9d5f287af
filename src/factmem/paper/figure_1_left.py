"""Figure 1, left: a d × d matrix stores N associations if d² exceeds N log N."""

from factmem.paper.capacity_figure import capacity_figure
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.memory_figures import (
    AUTHORS_SEEDS,
    BRACKET_RATIO,
    N_LOG_N,
    QUICK_DIMS,
    QUICK_SEEDS,
    authors_line,
    capacity_law,
    comma_separated,
    half_powers,
    matrix_lines,
)
from factmem.paper.registry import register_figure
from factmem.plotting.plot import Axis

__all__ = ["figure_1_left"]

_DIMS = {"quick": QUICK_DIMS, "paper": half_powers(3, 8)}
_OPTIMAL_DIMS = {"quick": (8, 16, 32), "paper": half_powers(3, 6)}
"""Sizes with a proof that no matrix stores more. Above d = 64 a proof takes hours."""
_SEEDS = {"quick": QUICK_SEEDS, "paper": AUTHORS_SEEDS}


@register_figure("1-left", order=(1, 1))
def figure_1_left(scale: Scale = "quick") -> PaperFigure:
    """Build the figure of associations stored by matrices against d²."""
    dims, seeds = _DIMS[scale], _SEEDS[scale]
    return capacity_figure(
        "1-left",
        "Figure 1, left: linear associative memory",
        description="A linear memory is one matrix: it maps the embedding of a question to that of "
        "its answer, and the nearest answer counts. How many pairs fit? Not d, as for exact "
        "regression, but nearly as many as the matrix has entries: N log N grows as d².",
        lines=matrix_lines(dims, _OPTIMAL_DIMS[scale], seeds, scale),
        axes=(Axis("matrix entries, d²", "log"), Axis("associations stored, N", "log")),
        size=lambda problem: float(problem.dim**2),
        law=capacity_law(N_LOG_N, "d²"),
        reference=authors_line("authors' line, d² = 1.3 N ln N", (20, 6000), 1.3, logarithm=True),
        setup=f"Matrices of d = {comma_separated(sorted(dims))} trained as in the paper (Adam at "
        "rate 1000, 2^12 steps on all associations, stored means 99%), and the optimal matrix, "
        f"with a proof that none stores more. Seeds {comma_separated(seeds)}; brackets to a ratio "
        f"of {BRACKET_RATIO[scale]}.",
        explanation="At small d the constant of N ln N / d² still decreases with d.",
    )
