"""Section 3 of the paper: how much the best linear memory stores, exactly and by arg-max.

Importing this loads no jax.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factmem import memories
from factmem.experiments.measurement import MeasurementGroup, unstored_tasks
from factmem.paper.claim import (
    Claim,
    Finding,
    between,
    close,
    exponent,
    fitted,
    fitted_brackets,
)
from factmem.paper.memory_searches import (
    bracket_middle,
    ends,
    matrix_searches,
    with_logarithm,
)

__all__ = [
    "exact_matching",
    "limit_of_linear_memories",
]


def measure_exact_matching(*, dims: Sequence[int], seed: int) -> dict[str, Any]:
    """The largest N that least squares match exactly, between d/2 and 2d."""
    import jax.random as jr

    def exact(facts: int, dim: int) -> bool:
        pairs = memories.Associations.draw(jr.key(seed), facts, dim)
        return float(memories.exact_matches(memories.least_squares(pairs), pairs)) == 1

    counts = {dim: [dim // 2, dim - 1, dim, dim + 1, 2 * dim] for dim in dims}
    return {
        "stored": [
            max((n for n in counts[dim] if exact(n, dim)), default=float("nan")) for dim in dims
        ]
    }


def exact_matching(
    seeds: Sequence[int],
    dims: Sequence[int] = (8, 16, 32),
    exact_dims: Sequence[int] = (16, 32, 64),
) -> Claim:
    """Exact matching against arg-max."""

    def judge(results: Mapping[str, Any]) -> Finding:
        exact = fitted(
            [d for _ in results["exact"] for d in exact_dims],
            [n for r in results["exact"] for n in r["stored"]],
        )
        found = results["arg-max"]
        law = fitted_brackets(
            [float(each.problem.dim) for each in found for _ in each.seeds],
            [with_logarithm(ends(seed.bracket)) for each in found for seed in each.seeds],
        )
        stored = bracket_middle(found[-1].seeds[-1].bracket) / found[-1].problem.dim
        return Finding.of(
            [
                close("exactly matched facts over d", exact.factor, 1, 1e-6),
                close("exponent of exactly matched facts against d", exact.exponent, 1, 1e-6),
                exponent("N ln N of arg-max against d", law, 1.7, 2.2),
                between("facts by arg-max over d at the largest d", stored, 3),
            ]
        )

    return Claim(
        "exact-matching",
        "Matching outputs exactly stores about d associations, decoding by arg-max about d².",
        "Section 3, remarks on Theorem 1",
        "The largest N of d/2 … 2d that least squares match; the largest N of any matrix by "
        "arg-max, each proved.",
        MeasurementGroup(
            {
                "exact": unstored_tasks(measure_exact_matching, seeds, dims=list(exact_dims)),
                "arg-max": matrix_searches(seeds[:2], dims),
            }
        ),
        judge,
    )


def limit_of_linear_memories(
    seeds: Sequence[int], dims: Sequence[int] = (8, 16, 32), at_length: Sequence[int] = (16, 32, 64)
) -> Claim:
    """N ln N / d² of the best linear memory."""

    def judge(found: Sequence[Any]) -> Finding:
        loads = [_load(each) for each in found]
        # 1/2 + c/ln N is how the leading correction looks; its value at 1/ln N = 0 is the limit.
        inverse = [1 / math.log(max(_stored(each), 2)) for each in found]
        limit = _where_it_meets_zero(inverse, loads)
        checks = [
            *(
                between(f"N ln N / d² at d = {each.problem.dim}", load, 0.5, 1.6)
                for each, load in zip(found, loads, strict=True)
            ),
            between("how it falls from the least to the largest d", loads[0] - loads[-1], 0),
            between("extrapolated to infinite d", limit, 0.2, 0.8),
        ]
        return Finding.of(
            checks, "At every d that can be reached the constant is far above its limit 1/2."
        )

    return Claim(
        "linear-limit",
        "The best linear memory stores N ln N ≈ d²/2 as d grows; at finite d it stores more.",
        "Beside section 3: the limit known from later work",
        "The largest N of any matrix, each proved: N ln N / d² lies above 1/2, falls with d, and "
        "its line in 1/ln N ends near 1/2.",
        matrix_searches(seeds[:2], dims),
        judge,
        at_length=matrix_searches(seeds, at_length, 1.01),
    )


def _where_it_meets_zero(x: Sequence[float], y: Sequence[float]) -> float:
    """The line through points at x = 0; NaN where all have the same x."""
    return float(np.polyfit(x, y, 1)[1]) if np.ptp(x) > 1e-9 else math.nan


def _load(found: Any) -> float:
    facts = _stored(found)
    return facts * math.log(max(facts, 1)) / found.problem.dim**2


def _stored(found: Any) -> float:
    """The median over seeds."""
    return float(np.median([bracket_middle(seed.bracket) for seed in found.seeds]))
