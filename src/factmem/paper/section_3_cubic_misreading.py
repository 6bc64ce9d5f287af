"""A misreading of section 3 that should fail: d³ associations in d² parameters.

Theorem 2 stores d³ associations only with m = d² neurons, which have 2d³ weights.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from factmem import bounds
from factmem.experiments.measurement import MeasurementGroup
from factmem.paper.claim import Claim, Finding, MeasurementError, check_between, fit_brackets
from factmem.paper.memory_figures import bracket_ends, matrix_searches, mlp_searches
from factmem.paper.registry import register_claim

__all__ = ["cubic_capacity"]


@register_claim("cubic-capacity", order=(7,))
def cubic_capacity(
    seeds: Sequence[int], widths: Sequence[int] = (32, 128), matrices: Sequence[int] = (8, 16, 32)
) -> Claim:
    """Check the misreading, which is expected to fail."""

    def judge(results: Mapping[str, Sequence[Any]]) -> Finding:
        checks = []
        for name, capacities in results.items():
            law = fit_brackets(
                [each.problem.parameters for each in capacities for _ in each.seeds],
                [bracket_ends(seed.bracket) for each in capacities for seed in each.seeds],
            )
            if not math.isfinite(law.half_width):
                raise MeasurementError(f"{name}: its capacity is not known")
            # d³ associations in d² parameters would be an exponent of 3/2.
            checks.append(
                check_between(f"{name}: exponent of N in parameters, upper end", law.high, 1.5)
            )
        needed = bounds.bits_for_loss(0, 64**3, bounds.Zipf(64**3))
        checks.append(
            check_between(
                "bits of 64² 32-bit weights over bits of 64³ facts", 32 * 64**2 / needed, 1
            )
        )
        return Finding.from_checks(
            checks, "Theorem 2 stores d³ associations with m = d², in 2d³ parameters."
        )

    return Claim(
        "cubic-capacity",
        "MLPs store O(d³) associations with d² parameters.",
        "Not in the paper: from a summary of it",
        "The exponent of N in parameters, of fitted MLPs and of optimal matrices, which would be "
        "3/2; and the bits that so many associations need at d = 64 (Theorem 7).",
        MeasurementGroup(
            {
                "fitted MLP": mlp_searches(seeds, [(8, width) for width in widths], 8),
                "optimal matrix": matrix_searches(seeds[:2], matrices),
            }
        ),
        judge,
        refuted=True,
    )
