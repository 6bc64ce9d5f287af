"""Grids, seeds and capacity searches shared by the figures and claims about associative memories.

Importing this module loads no jax.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

from factmem._core.power_law import Number
from factmem.experiments.capacity import CapacitySearches
from factmem.experiments.memory_capacity import (
    LinearCapacityProblem,
    MLPCapacityProblem,
    solve_n_log_n,
)
from factmem.paper.capacity_figure import CapacityLaw, CapacityLine
from factmem.paper.figure import Scale
from factmem.plotting.plot import Line

__all__ = [
    "AUTHORS_SEEDS",
    "BRACKET_RATIO",
    "COARSE_RATIO",
    "N_LOG_N",
    "QUICK_DIMS",
    "QUICK_SEEDS",
    "Ends",
    "authors_line",
    "bracket_ends",
    "bracket_middle",
    "capacity_law",
    "comma_separated",
    "describe_mlps",
    "half_powers",
    "matrix_lines",
    "matrix_searches",
    "mlp_lines",
    "mlp_searches",
    "n_log_n_ends",
]

AUTHORS_SEEDS = (0, 1, 11, 111, 42)
QUICK_SEEDS = (0, 1, 2)
QUICK_DIMS = (16, 24, 12, 8)
"""The best guesses come first; later searches start from what the earlier ones found."""
BRACKET_RATIO = {"quick": 1.1, "paper": 1.01}
"""Upper over lower end of a bracket at the end of a search. The authors stop at 1.01."""
COARSE_RATIO = 1.15
"""Brackets of quick claims: the middle is off by at most 7%."""
_COMPARISON_RATIO = {"quick": COARSE_RATIO, "paper": 1.05}
"""Lines for comparison. At quick scale the claims use the same ratio, and share the runs."""
N_LOG_N = "N ln N"

Ends = tuple[float, float] | None
"""The largest N stored and the smallest N not stored; None if either is unknown."""


def matrix_searches(
    seeds: Sequence[int], dims: Sequence[int], ratio: float = COARSE_RATIO
) -> CapacitySearches:
    """Search for the capacity of the optimal matrix, which is proved; several claims share it."""
    return CapacitySearches([LinearCapacityProblem(dim, ratio=ratio) for dim in dims], seeds)


def mlp_searches(
    seeds: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    outputs: int | None,
    ratio: float = COARSE_RATIO,
) -> CapacitySearches:
    """Search for the capacity of fitted MLPs of shapes (d, m); several claims share it."""
    return CapacitySearches(
        [MLPCapacityProblem(dim, width, outputs=outputs, ratio=ratio) for dim, width in shapes],
        seeds,
    )


def bracket_ends(bracket: Any) -> Ends:
    """Return both ends of a bracket as numbers; None if either is unknown."""
    if bracket.lower is None or bracket.upper is None:
        return None
    return float(bracket.lower), float(bracket.upper)


def n_log_n_ends(ends: Ends) -> Ends:
    """Return N ln N at both ends."""
    if ends is None:
        return None
    lower, upper = (n * math.log(max(n, 1)) for n in ends)
    return lower, upper


def bracket_middle(bracket: Any) -> float:
    """Return the geometric mean of a bracket's ends; 0 if either is unknown."""
    ends = bracket_ends(bracket)
    return 0.0 if ends is None else math.sqrt(ends[0] * ends[1])


def half_powers(first: Number, last: Number) -> tuple[int, ...]:
    """Return ⌊2^i⌋ for i from `first` to `last` in steps of 1/2, the authors' spacing of sizes."""
    steps = round(2 * (last - first))
    return tuple(int(2 ** (first + step / 2)) for step in range(steps + 1))


def n_log_n(facts: float) -> float:
    """Return N ln N."""
    return facts * math.log(max(facts, 1.0))


def capacity_law(quantity: str, size: str) -> CapacityLaw:
    """Return the law that N, or N ln N, is proportional to the size."""
    formula = f"{quantity} ∝ ({size})^slope"
    if quantity == N_LOG_N:
        return CapacityLaw(formula, n_log_n, solve_n_log_n)
    return CapacityLaw(formula, float, float)


def authors_line(name: str, ends: tuple[Number, Number], factor: float, *, logarithm: bool) -> Line:
    """Return the authors' dashed line: size = factor · N ln N, or factor · N, between two N."""
    points = 40 if logarithm else 2
    step = (ends[1] / ends[0]) ** (1 / (points - 1))
    facts = [ends[0] * step**index for index in range(points)]
    sizes = [factor * (n_log_n(n) if logarithm else n) for n in facts]
    return Line(name, tuple(sizes), tuple(facts), kind="reference")


def matrix_lines(
    dims: Sequence[int], optimal_dims: Sequence[int], seeds: Sequence[int], scale: Scale
) -> list[CapacityLine]:
    """Return a line of trained matrices and one of optimal matrices."""
    trained = [LinearCapacityProblem(dim, "trained", 0.99, BRACKET_RATIO[scale]) for dim in dims]
    optimal = [
        LinearCapacityProblem(dim, "optimal", 1.0, _COMPARISON_RATIO[scale]) for dim in optimal_dims
    ]
    return [
        CapacityLine("trained as in the paper, 99%", trained, seeds),
        CapacityLine("optimal matrix, proved, 100%", optimal, seeds, counts=False),
    ]


def mlp_lines(
    width_ratios: Sequence[int],
    dims: Sequence[int],
    fitted_shapes: Sequence[tuple[int, int]],
    outputs: int | None,
    seeds: Sequence[int],
    scale: Scale,
) -> list[CapacityLine]:
    """Return a line of trained MLPs for each ratio m/d, and one of fitted MLPs of shapes (d, m)."""
    method: Literal["trained", "quick"] = "trained" if scale == "paper" else "quick"
    trained = {
        ratio: [
            MLPCapacityProblem(dim, ratio * dim, method, outputs, 0.99, BRACKET_RATIO[scale])
            for dim in dims
        ]
        for ratio in width_ratios
    }
    fitted = [
        MLPCapacityProblem(dim, width, "fitted", outputs, 1.0, _COMPARISON_RATIO[scale])
        for dim, width in fitted_shapes
    ]
    return [
        *(
            CapacityLine(f"trained, m = {'' if ratio == 1 else ratio}d, 99%", problems, seeds)
            for ratio, problems in trained.items()
        ),
        CapacityLine("fitted, 100%", fitted, seeds, counts=False),
    ]


def describe_mlps(
    dims: Sequence[int], width_ratios: Sequence[int], seeds: Sequence[int], scale: Scale
) -> str:
    """Describe the runs of `mlp_lines` for a caption."""
    steps = {"quick": "2^13 steps, a quarter of theirs,", "paper": "2^15 steps"}[scale]
    return (
        f"ReLU MLPs of d = {comma_separated(sorted(dims))} with m/d = "
        f"{comma_separated(width_ratios)}, trained as in the paper (Adam at rate 0.03, {steps} on "
        "all associations, stored means 99%), and a few shapes fitted by L-BFGS, where stored "
        "means all associations with 16-bit weights. Seeds "
        f"{comma_separated(seeds)}; brackets to a ratio of {BRACKET_RATIO[scale]}."
    )


def comma_separated(numbers: Sequence[int]) -> str:
    """Return the numbers separated by commas."""
    return ", ".join(map(str, numbers))
