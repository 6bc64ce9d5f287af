"""CapacitySearches for what memories store, on which several claims rest, and what their brackets say.

Importing this loads no jax.
"""

import math
from collections.abc import Sequence
from typing import Any

from factmem import experiments
from factmem.experiments.memory_capacity import LinearCapacityProblem, MLPCapacityProblem

__all__ = [
    "COARSE",
    "Ends",
    "bracket_middle",
    "ends",
    "few_output_searches",
    "matrix_searches",
    "with_logarithm",
]

COARSE = 1.15
"""Brackets of quick searches, as upper/lower: their middle is off by 7 % at most."""

Ends = tuple[float, float] | None


def matrix_searches(
    seeds: Sequence[int], dims: Sequence[int], ratio: float = COARSE
) -> experiments.CapacitySearches:
    """What the best matrices store, each proved; several claims rest on the same ones."""
    return experiments.CapacitySearches([LinearCapacityProblem(dim, ratio=ratio) for dim in dims], seeds)


def few_output_searches(
    seeds: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    outputs: int | None,
    ratio: float = COARSE,
) -> experiments.CapacitySearches:
    """What fitted MLPs of (d, m) store; several claims rest on the same ones."""
    return experiments.CapacitySearches(
        [MLPCapacityProblem(dim, width, outputs=outputs, ratio=ratio) for dim, width in shapes],
        seeds,
    )


def ends(bracket: Any) -> Ends:
    """The largest N that is stored and the smallest that is not; None without one of them."""
    if bracket.lower is None or bracket.upper is None:
        return None
    return float(bracket.lower), float(bracket.upper)


def with_logarithm(bracket: Ends) -> Ends:
    """The same of N ln N."""
    if bracket is None:
        return None
    lower, upper = (n * math.log(max(n, 1)) for n in bracket)
    return lower, upper


def bracket_middle(bracket: Any) -> float:
    """Between the largest N that is stored and the smallest that is not; 0 without one of them."""
    both = ends(bracket)
    return 0.0 if both is None else math.sqrt(both[0] * both[1])
