"""Section 3 of the paper, Theorem 1: what linear memories store.

Each claim is a function of its seeds and sizes; what it measures stands before it. Importing this
loads no jax.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import memories
from factmem._core.errors import FactmemError
from factmem.experiments.measurement import direct
from factmem.memories import embeddings
from factmem.paper.claim import (
    Claim,
    Finding,
    between,
    close,
    exponent,
    fitted,
)
from factmem.paper.drawn_memories import facts_at_accuracy, margin_moments, mean_accuracy
from factmem.paper.results import Results, column, least, mean, most

__all__ = [
    "one_gradient_step",
    "orthonormal_embeddings",
    "quantization",
    "shared_answers",
    "theorem_1a",
    "theorem_1b",
]

_DRAWS = 30

_LOADS = (64, 40, 28, 20)
"""Numbers in a memory per association, around where the outer products begin to err."""


def measure_hebbian(*, dim: int, facts: int, dims: Sequence[int], seed: int) -> dict[str, Any]:
    """Margins at one size, recall at d²/96 and how much is stored at several d."""

    def make(_: Any, pairs: Any) -> Any:
        return memories.hebbian(pairs)

    moments = margin_moments(make, facts, dim, seed, _DRAWS)
    return {
        "mean": moments.mean,
        "variance": moments.variance,
        "safe_accuracy": mean_accuracy(make, 96, 96, seed, 5),
        "stored": [
            facts_at_accuracy(make, [each**2 // load for load in _LOADS], each, seed, 3)
            for each in dims
        ],
    }


def theorem_1a(
    seeds: Sequence[int], dim: int = 64, facts: int = 96, dims: Sequence[int] = (48, 160)
) -> Claim:
    """Theorem 1 (a)."""
    variance = 1 / dim + (1 + 1 / dim) / dim + (facts - 2) * 2 / dim**2

    def judge(results: Results) -> Finding:
        law = fitted([d for _ in results for d in dims], [n for r in results for n in r["stored"]])
        return Finding.of(
            [
                close("mean of margins", mean(results, "mean"), 1, 0.03),
                close("variance of margins", mean(results, "variance"), variance, 0.08),
                between("recall of d²/96 facts, d = 96", least(results, "safe_accuracy"), 1),
                exponent("facts at 99 % against d", law, 1.8, 2.2),
            ]
        )

    return Claim(
        "theorem-1a",
        "The sum of outer products, a d × d matrix, stores N associations of random embeddings as "
        "soon as d² exceeds N times logarithms.",
        "Theorem 1, first part",
        f"Margins over {_DRAWS} draws against their exact mean and variance; recall of everything "
        "at N = d²/96; the exponent of N at 99 % accuracy against d.",
        unstored_tasks(measure_hebbian, seeds, dim=dim, facts=facts, dims=list(dims)),
        judge,
    )


def measure_low_rank(
    *, dim: int, facts: int, ranks: Sequence[int], dims: Sequence[int], seed: int
) -> dict[str, Any]:
    """Margins at some ranks, recall at a safe size and how much is stored at several m = d/2."""

    def of_rank(rank: int) -> Any:
        return lambda key, pairs: memories.low_rank(key, pairs, rank)

    moments = [margin_moments(of_rank(rank), facts, dim, seed, _DRAWS) for rank in ranks]
    return {
        "means": [each.mean for each in moments],
        "variances": [each.variance for each in moments],
        "safe_accuracy": mean_accuracy(of_rank(128), 64, 256, seed, 5),
        "stored": [
            facts_at_accuracy(
                of_rank(each // 2), [each**2 // 4 // load for load in _LOADS], each, seed, 6
            )
            for each in dims
        ],
    }


def theorem_1b(
    seeds: Sequence[int],
    dim: int = 64,
    facts: int = 96,
    ranks: Sequence[int] = (16, 48),
    dims: Sequence[int] = (96, 192),
) -> Claim:
    """Theorem 1 (b)."""

    def variance(rank: int) -> float:
        alone, spread = 1 + 2 / rank, 1 / dim + (1 + 1 / dim) / rank
        return (1 + 1 / dim) * (alone + spread) - 1 + (facts - 2) * 2 / dim * spread

    def judge(results: Results) -> Finding:
        law = fitted(
            [d**2 / 2 for _ in results for d in dims], [n for r in results for n in r["stored"]]
        )
        means, variances = (
            np.mean(column(results, name), axis=0) for name in ("means", "variances")
        )
        return Finding.of(
            [
                *(
                    close(f"mean of margins, m = {rank}", found, 1, 0.05)
                    for rank, found in zip(ranks, means, strict=True)
                ),
                *(
                    close(f"variance of margins, m = {rank}", found, variance(rank), 0.12)
                    for rank, found in zip(ranks, variances, strict=True)
                ),
                between("recall of 64 facts, d = 256, m = 128", least(results, "safe_accuracy"), 1),
                exponent("facts at 99 % against m·d, m = d/2", law, 0.85, 1.25),
            ]
        )

    return Claim(
        "theorem-1b",
        "A matrix of rank m stores N associations as soon as m·d exceeds N times logarithms.",
        "Theorem 1, second part",
        f"Margins over {_DRAWS} draws against their exact mean and variance at several ranks; "
        "recall at a safe size; the exponent of N at 99 % accuracy against m·d.",
        unstored_tasks(measure_low_rank, seeds, dim=dim, facts=facts, ranks=list(ranks), dims=list(dims)),
        judge,
    )


def measure_orthonormal(*, dim: int, facts: int, seed: int) -> dict[str, Any]:
    """d orthonormal embeddings, whether there are d + 1, and random ones beyond d."""
    import jax.random as jr

    keys = jr.split(jr.key(seed))
    pairs = memories.Associations.draw(keys[0], dim, dim, embedding=embeddings.orthonormal)
    score = memories.hebbian(pairs).score(pairs)
    try:
        embeddings.orthonormal(keys[0], dim + 1, dim)
        more = 1.0
    except FactmemError:
        more = 0.0
    random = memories.Associations.draw(keys[1], facts, dim)
    return {
        "accuracy": score.accuracy,
        "min_margin": score.min_margin,
        "more": more,
        "random_accuracy": memories.maximal(random).memory.score(random).accuracy,
    }


def orthonormal_embeddings(seeds: Sequence[int], dim: int = 32, facts: int = 128) -> Claim:
    """Orthonormal embeddings."""

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between(f"recall of N = d = {dim} facts", least(results, "accuracy"), 1),
                close("their smallest margin", least(results, "min_margin"), 1, 1e-4),
                between("orthonormal embeddings beyond d", mean(results, "more"), 0, 0),
                between(
                    f"recall of N = {facts} facts with random embeddings",
                    least(results, "random_accuracy"),
                    1,
                ),
            ]
        )

    return Claim(
        "orthonormal",
        "Orthonormal embeddings store N = d associations and no more; random ones far more.",
        "Section 3, remarks on Theorem 1",
        "The sum of outer products on d orthonormal keys and values; a draw of d + 1 is refused; "
        f"the best matrix on {facts} random ones.",
        unstored_tasks(measure_orthonormal, seeds, dim=dim, facts=facts),
        judge,
    )


def measure_shared_answers(*, dim: int, few: int, many: int, seed: int) -> dict[str, Any]:
    """Memories of two outputs, by outer products and the best there are; and of N outputs."""
    import jax.random as jr

    def best(facts: int, outputs: int | None) -> tuple[float, Any]:
        pairs = memories.Associations.draw(jr.key(seed), facts, dim, outputs)
        found = memories.maximal(pairs)
        return found.memory.score(pairs).accuracy, found.verdict.value

    pairs = memories.Associations.draw(jr.key(seed), many, dim, 2)
    return {
        "few": best(few, 2)[0],
        "infeasible": float(best(many, 2)[1] == "infeasible"),
        "injective": best(many, None)[0],
        "hebbian": memories.hebbian(pairs).score(pairs).accuracy,
    }


def shared_answers(seeds: Sequence[int], dim: int = 32) -> Claim:
    """Non-injective targets."""
    few, many = 3 * dim // 2, 4 * dim

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between(f"recall of 1.5 d = {few} facts, 2 outputs", least(results, "few"), 1),
                between(
                    f"proved that no matrix stores 4 d = {many}", mean(results, "infeasible"), 1
                ),
                between("recall of 4 d facts, as many outputs", least(results, "injective"), 1),
                between(
                    "recall of 4 d facts by outer products", mean(results, "hebbian"), most=0.9
                ),
            ]
        )

    return Claim(
        "shared-answers",
        "Without distinct answers a linear memory stores only about d associations.",
        "Section 3, remarks on Theorem 1",
        f"Two outputs, d = {dim}: the best matrix stores 1.5 d of them, none stores 4 d (proved); "
        "with N outputs 4 d are stored.",
        unstored_tasks(measure_shared_answers, seeds, dim=dim, few=few, many=many),
        judge,
    )


def measure_gradient_step(*, dim: int, facts: int, rank: int, seed: int) -> dict[str, Any]:
    """How far one step of gradient descent from zero is from the constructions, relatively."""
    import equinox as eqx
    import jax.numpy as jnp
    import jax.random as jr

    keys = jr.split(jr.key(seed))
    pairs = memories.Associations.draw(keys[0], facts, dim)

    def away(step: Any, built: Any) -> float:
        return float(jnp.linalg.norm(step - built) / jnp.linalg.norm(built))

    zero = memories.LinearMemory(jnp.zeros((dim, dim)))
    step = -eqx.filter_grad(memories.correlation_loss)(zero, pairs).matrix
    low = memories.low_rank(keys[1], pairs, rank)
    empty = memories.LowRankMemory(jnp.zeros((dim, rank)), low.right)
    low_step = -eqx.filter_grad(memories.correlation_loss)(empty, pairs).left
    return {
        "full": away(step, memories.hebbian(pairs).matrix),
        # The construction divides by the rank, which no arg-max sees.
        "low_rank": away(low_step / rank, low.left),
    }


def one_gradient_step(
    seeds: Sequence[int], dim: int = 48, facts: int = 80, rank: int = 12
) -> Claim:
    """The constructions as gradient steps."""

    def judge(results: Results) -> Finding:
        worst = {name: most(results, name) for name in ("full", "low_rank")}
        return Finding.of(
            [
                between("distance of the full matrix, relative", worst["full"], most=1e-5),
                between("distance at low rank, relative", worst["low_rank"], most=1e-5),
            ]
        )

    return Claim(
        "one-gradient-step",
        "Both constructions of Theorem 1 are one gradient step on the correlation loss from zero.",
        "Section 3, remarks on Theorem 1",
        "Automatic differentiation of −Σ ⟨u, F(e)⟩ at W = 0, and at U = 0 of W = U Vᵀ.",
        unstored_tasks(measure_gradient_step, seeds, dim=dim, facts=facts, rank=rank),
        judge,
    )


def measure_quantization(*, dims: Sequence[int], seed: int) -> dict[str, Any]:
    """What rounding to multiples of 1/(4d) does to margins, and the bits that are enough."""
    import jax.random as jr

    found = []
    for dim in dims:
        facts = dim * dim // 128
        pairs = memories.Associations.draw(jr.key(seed), facts, dim)
        memory = memories.hebbian(pairs)
        step = 1 / (4 * dim)
        coarse = memories.rounded_to_multiples(memory, step)
        before, after = (np.asarray(m.margins(pairs), np.float64) for m in (memory, coarse))
        others = np.isfinite(before)
        moved = np.abs(after[others] - before[others])
        found.append(
            {
                "min_margin": float(before.min()),
                "coarse_accuracy": coarse.score(pairs).accuracy,
                "moved": float(moved.max()) / (step * dim),
                "bits": memories.bits_needed(memory, pairs) or float("nan"),
                "proved_bits": math.log2(8 * facts * dim + 1),
            }
        )
    return {"sizes": found}


def quantization(seeds: Sequence[int], dims: Sequence[int] = (96, 160, 256)) -> Claim:
    """Bounded bits for each weight."""

    def judge(results: Results) -> Finding:
        sizes = [size for result in results for size in result["sizes"]]
        spare = column(sizes, "proved_bits") - column(sizes, "bits")
        return Finding.of(
            [
                between("recall at ε = 1/(4d)", least(sizes, "coarse_accuracy"), 1),
                between("largest shift of a margin over ε d", most(sizes, "moved"), 1e-6, 1),
                between("bits that are enough", most(sizes, "bits"), 1, 6),
                between("proved bits, log2(8Nd + 1), less those", float(spare.min()), 0),
            ],
            "The proof's constant is loose: a few bits do where it asks for 13 and more.",
        )

    return Claim(
        "quantization",
        "The linear memory survives rounding its weights to multiples of about 1/d: O(log d) bits "
        "for each weight, and Õ(N) in all.",
        "Section 3 and the corollary on bounded bits",
        "Outer products at N = d²/128: every margin moves by at most ε d, all is recalled at "
        "ε = 1/(4d), and the fewest bits do not grow with d.",
        unstored_tasks(measure_quantization, seeds, dims=list(dims)),
        judge,
    )
