"""Figure 1, left: a d × d matrix stores N associations when d² exceeds N log N."""

from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.memory_lines import (
    AUTHORS_SEEDS,
    QUICK_DIMS,
    QUICK_SEEDS,
    RATIO,
    WITH_LOGARITHM,
    dashed,
    half_powers,
    law,
    listed,
    matrix_lines,
)
from factmem.paper.stored_facts import stored_facts_figure
from factmem.plotting.plot import Axis

__all__ = ["figure_1_left"]

_DIMS = {"quick": QUICK_DIMS, "paper": half_powers(3, 8)}
_PROVED = {"quick": (8, 16, 32), "paper": half_powers(3, 6)}
"""Where it is proved that no matrix stores more: above d = 64 a proof takes hours."""
_SEEDS = {"quick": QUICK_SEEDS, "paper": AUTHORS_SEEDS}


def figure_1_left(scale: FigureScale = "quick") -> PaperFigure:
    """Associations that matrices store, against their numbers."""
    dims, seeds = _DIMS[scale], _SEEDS[scale]
    return stored_facts_figure(
        "1-left",
        "Figure 1, left: linear associative memory",
        told="A linear memory is one matrix: it maps the embedding of a problem to that of its "
        "answer, and the nearest answer counts. How many pairs fit? Not d, as for exact "
        "regression, but nearly as many as the matrix has numbers: N log N grows as d².",
        lines=matrix_lines(dims, _PROVED[scale], seeds, scale),
        axes=(Axis("numbers in the matrix, d²", "log"), Axis("associations stored, N", "log")),
        size=lambda problem: float(problem.dim**2),
        law=law(WITH_LOGARITHM, "d²"),
        reference=dashed("authors' line, d² = 1.3 N ln N", (20, 6000), 1.3, logarithm=True),
        ran=f"Matrices of d = {listed(sorted(dims))} trained as in the paper (Adam at rate "
        f"1000, 2^12 steps on all associations, stored means 99 %), and the best matrix that "
        f"exists, with a proof that none stores more. Seeds {listed(seeds)}; "
        f"brackets to a ratio of {RATIO[scale]}.",
        unless="At small d the constant of N ln N / d² still falls with d.",
    )
