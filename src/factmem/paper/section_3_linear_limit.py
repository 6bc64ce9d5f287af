"""Section 3: the capacity of the optimal linear memory, with exact matching and with argmax.

Importing this module loads no jax.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factmem import memories
from factmem.experiments.measurement import MeasurementGroup, uncached_tasks
from factmem.paper.claim import (
    Claim,
    Finding,
    check_between,
    check_close,
    check_exponent,
    fit_brackets,
    fit_values,
)
from factmem.paper.memory_figures import (
    bracket_ends,
    bracket_middle,
    matrix_searches,
    n_log_n_ends,
)
from factmem.paper.registry import register_claim

__all__ = ["exact_matching", "linear_limit"]


def measure_exact_matching(*, dims: Sequence[int], seed: int) -> dict[str, Any]:
    """Measure the largest N between d/2 and 2d that least squares match exactly."""
    import jax.random as jr

    def matches(facts: int, dim: int) -> bool:
        pairs = memories.Associations.draw(facts, dim, key=jr.key(seed))
        return float(memories.exact_match_rate(memories.least_squares(pairs), pairs)) == 1

    counts = {dim: [dim // 2, dim - 1, dim, dim + 1, 2 * dim] for dim in dims}
    return {
        "stored": [
            max((n for n in counts[dim] if matches(n, dim)), default=float("nan")) for dim in dims
        ]
    }


@register_claim("exact-matching", order=(3, 40))
def exact_matching(
    seeds: Sequence[int],
    dims: Sequence[int] = (8, 16, 32),
    exact_dims: Sequence[int] = (16, 32, 64),
) -> Claim:
    """Compare exact matching with decoding by argmax."""

    def judge(results: Mapping[str, Any]) -> Finding:
        exact = fit_values(
            [d for _ in results["exact"] for d in exact_dims],
            [n for r in results["exact"] for n in r["stored"]],
        )
        capacities = results["argmax"]
        law = fit_brackets(
            [float(each.problem.dim) for each in capacities for _ in each.seeds],
            [n_log_n_ends(bracket_ends(s.bracket)) for each in capacities for s in each.seeds],
        )
        largest = capacities[-1]
        stored = bracket_middle(largest.seeds[-1].bracket) / largest.problem.dim
        return Finding.from_checks(
            [
                check_close("exactly matched facts / d", exact.factor, 1, 1e-6),
                check_close("exponent of exactly matched facts against d", exact.exponent, 1, 1e-6),
                check_exponent("N ln N of argmax against d", law, 1.7, 2.2),
                check_between("facts by argmax over d at the largest d", stored, 3),
            ]
        )

    return Claim(
        "exact-matching",
        "Exact matching of outputs stores about d associations, decoding by argmax about d².",
        "Section 3, remarks on Theorem 1",
        "The largest N of d/2 … 2d that least squares match; the largest N of any matrix by "
        "argmax, each proved.",
        MeasurementGroup(
            {
                "exact": uncached_tasks(measure_exact_matching, seeds, dims=list(exact_dims)),
                "argmax": matrix_searches(seeds[:2], dims),
            }
        ),
        judge,
    )


@register_claim("linear-limit", order=(3, 70))
def linear_limit(
    seeds: Sequence[int],
    dims: Sequence[int] = (8, 16, 32),
    paper_dims: Sequence[int] = (16, 32, 64),
) -> Claim:
    """Check the limit of N ln N / d² of the optimal linear memory."""

    def judge(capacities: Sequence[Any]) -> Finding:
        loads = [_load(each) for each in capacities]
        # The leading correction has the form 1/2 + c/ln N: extrapolate to 1/ln N = 0.
        inverse = [1 / math.log(max(_stored(each), 2)) for each in capacities]
        limit = _intercept(inverse, loads)
        checks = [
            *(
                check_between(f"N ln N / d² at d = {each.problem.dim}", load, 0.5, 1.6)
                for each, load in zip(capacities, loads, strict=True)
            ),
            check_between(
                "decrease of N ln N / d² from the smallest to the largest d",
                loads[0] - loads[-1],
                0,
            ),
            check_between("extrapolated to infinite d", limit, 0.2, 0.8),
        ]
        return Finding.from_checks(
            checks, "At every d within reach the constant is far above its limit 1/2."
        )

    return Claim(
        "linear-limit",
        "The optimal linear memory stores N ln N ≈ d²/2 as d grows; at finite d it stores more.",
        "Related to section 3: the limit is known from later work",
        "The largest N of any matrix, each proved: N ln N / d² is above 1/2, decreases with d, and "
        "extrapolates linearly in 1/ln N to about 1/2.",
        matrix_searches(seeds[:2], dims),
        judge,
        paper_measurement=matrix_searches(seeds, paper_dims, 1.01),
    )


def _intercept(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the value at x = 0 of the line through points; NaN if all x are equal."""
    return float(np.polyfit(x, y, 1)[1]) if np.ptp(x) > 1e-9 else math.nan


def _load(capacity: Any) -> float:
    facts = _stored(capacity)
    return facts * math.log(max(facts, 1)) / capacity.problem.dim**2


def _stored(capacity: Any) -> float:
    """Return the median capacity over seeds."""
    return float(np.median([bracket_middle(seed.bracket) for seed in capacity.seeds]))
