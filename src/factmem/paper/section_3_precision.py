"""Section 3: linear memories with a bounded number of bits per weight.

Importing this module loads no jax.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import memories
from factmem.experiments.measurement import uncached_tasks
from factmem.paper.claim import Claim, Finding, check_between
from factmem.paper.registry import register_claim
from factmem.paper.statistics import SeedResults, column, maximum, minimum

__all__ = ["quantization"]


def measure_quantization(*, dims: Sequence[int], seed: int) -> dict[str, Any]:
    """Measure how rounding to multiples of 1/(4d) changes margins, and how many bits suffice."""
    import jax.random as jr

    sizes = []
    for dim in dims:
        facts = dim * dim // 128
        pairs = memories.Associations.draw(facts, dim, key=jr.key(seed))
        memory = memories.hebbian(pairs)
        step = 1 / (4 * dim)
        coarse = memories.rounded_to_multiples(memory, step)
        before, after = (np.asarray(m.margins(pairs), np.float64) for m in (memory, coarse))
        others = np.isfinite(before)
        shift = np.abs(after[others] - before[others])
        sizes.append(
            {
                "min_margin": float(before.min()),
                "coarse_accuracy": coarse.score(pairs).accuracy,
                "shift": float(shift.max()) / (step * dim),
                "bits": memories.bits_needed(memory, pairs) or float("nan"),
                "proved_bits": math.log2(8 * facts * dim + 1),
            }
        )
    return {"sizes": sizes}


@register_claim("quantization", order=(3, 120))
def quantization(seeds: Sequence[int], dims: Sequence[int] = (96, 160, 256)) -> Claim:
    """Check that a bounded number of bits per weight suffices."""

    def judge(results: SeedResults) -> Finding:
        sizes = [size for result in results for size in result["sizes"]]
        spare = column(sizes, "proved_bits") - column(sizes, "bits")
        return Finding.from_checks(
            [
                check_between("accuracy at ε = 1/(4d)", minimum(sizes, "coarse_accuracy"), 1),
                check_between(
                    "largest shift of a margin over ε d", maximum(sizes, "shift"), 1e-6, 1
                ),
                check_between("bits that suffice", maximum(sizes, "bits"), 1, 6),
                check_between("proved bits, log2(8Nd + 1), minus those", float(spare.min()), 0),
            ],
            "The constant of the proof is loose: a few bits suffice where it asks for 13 or more.",
        )

    return Claim(
        "quantization",
        "The linear memory keeps its associations if its weights are rounded to multiples of about "
        "1/d: O(log d) bits per weight, and Õ(N) in all.",
        "Section 3 and the corollary on bounded bits",
        "Outer products at N = d²/128: every margin moves by at most ε d, everything is recalled "
        "at ε = 1/(4d), and the number of bits that suffice does not grow with d.",
        uncached_tasks(measure_quantization, seeds, dims=list(dims)),
        judge,
    )
