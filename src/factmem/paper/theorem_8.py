"""Theorem 8: the bits that a model with zero loss needs for a random table."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import bounds
from factmem.experiments.measurement import uncached_tasks
from factmem.paper.claim import Claim, Finding, check_between
from factmem.paper.registry import register_claim
from factmem.paper.statistics import SeedResults, column, minimum

__all__ = ["theorem_8"]

_SMALL_TABLES = ((4, 1, 2, 5), (8, 1, 2, 5), (2, 2, 2, 5), (3, 2, 2, 4), (2, 3, 1, 5))
"""S, R, D and |V|."""


def measure_theorem_8(*, sizes: Sequence[Sequence[int]], seed: int) -> dict[str, Any]:
    """Compare the entropies of random tables with an enumeration of all tables."""
    return {
        "errors": [abs(bounds.random_table_bits(*each).bits - _enumerate(*each)) for each in sizes],
        "example": bounds.random_table_bits(32, 32, 8, 512).bits,
    }


def _enumerate(subjects: int, relations: int, answers: int, vocabulary: int) -> float:
    """Compute the entropy of a random table by enumerating answer sets and tables."""
    counts: dict[tuple[int, ...], int] = {}
    for words in itertools.permutations(range(vocabulary), relations * answers):
        sets = [words[r * answers : (r + 1) * answers] for r in range(relations)]
        if any(list(own) != sorted(own) for own in sets):
            continue  # count each set once, in sorted order
        for picks in itertools.product(range(answers), repeat=subjects * relations):
            table = tuple(sets[index % relations][pick] for index, pick in enumerate(picks))
            counts[table] = counts.get(table, 0) + 1
    weights = np.array(list(counts.values()), np.float64)
    return float(-(weights / weights.sum()) @ np.log2(weights / weights.sum()))


@register_claim("theorem-8", order=(6, 40))
def theorem_8(seeds: Sequence[int], sizes: Sequence[Sequence[int]] = _SMALL_TABLES) -> Claim:
    """Check Theorem 8."""
    paper_bound = 32 * 32 * 3 + 32 * 8 * math.log2(512 / 8)

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_between(
                    "largest difference from the enumeration (bits)",
                    float(column(results, "errors").max()),
                    high=1e-9,
                ),
                check_between(
                    "S = R = 32, D = 8, |V| = 512: bits divided by the paper's bound",
                    minimum(results, "example") / paper_bound,
                    0.9,
                    1.2,
                ),
            ],
            "The paper does not give the constant; a model with zero loss needs the entropy.",
        )

    return Claim(
        "theorem-8",
        "A model with zero loss on a random table has at least S R log D + Ω(R D log(|V|/D)) bits.",
        "Theorem 8",
        "The exact entropy against an enumeration of all tables of small sizes; its value at one "
        "size against the paper's bound.",
        uncached_tasks(measure_theorem_8, seeds[:1], sizes=[list(each) for each in sizes]),
        judge,
    )
