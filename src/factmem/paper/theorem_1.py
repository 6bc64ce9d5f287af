"""Theorem 1: the capacity of linear associative memories.

Importing this module loads no jax.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import memories
from factmem._core.errors import FactmemError
from factmem.experiments.measurement import uncached_tasks
from factmem.paper.claim import (
    Claim,
    Finding,
    check_between,
    check_close,
    check_exponent,
    fit_values,
)
from factmem.paper.registry import register_claim
from factmem.paper.statistics import (
    SeedResults,
    column,
    facts_at_accuracy,
    margin_moments,
    maximum,
    mean,
    mean_accuracy,
    minimum,
)

__all__ = [
    "one_gradient_step",
    "orthonormal_embeddings",
    "shared_answers",
    "theorem_1a",
    "theorem_1b",
]

_DRAWS = 30

_LOADS = (64, 40, 28, 20)
"""Weights per association, around the load at which the sum of outer products begins to err."""


def measure_hebbian(*, dim: int, facts: int, dims: Sequence[int], seed: int) -> dict[str, Any]:
    """Measure margins at one size, accuracy at N = d²/96, and the capacity at several d."""

    def build(_: Any, pairs: Any) -> Any:
        return memories.hebbian(pairs)

    moments = margin_moments(build, facts, dim, seed, _DRAWS)
    return {
        "mean": moments.mean,
        "variance": moments.variance,
        "safe_accuracy": mean_accuracy(build, 96, 96, seed, 5),
        "stored": [
            facts_at_accuracy(build, [d**2 // load for load in _LOADS], d, seed, 3) for d in dims
        ],
    }


@register_claim("theorem-1a", order=(3, 10))
def theorem_1a(
    seeds: Sequence[int], dim: int = 64, facts: int = 96, dims: Sequence[int] = (48, 160)
) -> Claim:
    """Check Theorem 1 (a), on full matrices."""
    variance = 1 / dim + (1 + 1 / dim) / dim + (facts - 2) * 2 / dim**2

    def judge(results: SeedResults) -> Finding:
        law = fit_values(
            [d for _ in results for d in dims], [n for r in results for n in r["stored"]]
        )
        return Finding.from_checks(
            [
                check_close("mean margin", mean(results, "mean"), 1, 0.03),
                check_close("variance of margins", mean(results, "variance"), variance, 0.08),
                check_between(
                    "accuracy on d²/96 facts, d = 96", minimum(results, "safe_accuracy"), 1
                ),
                check_exponent("facts at 99% against d", law, 1.8, 2.2),
            ]
        )

    return Claim(
        "theorem-1a",
        "The sum of outer products, a d × d matrix, stores N associations of random embeddings if "
        "d² exceeds N up to logarithms.",
        "Theorem 1, first part",
        f"Margins over {_DRAWS} draws against their exact mean and variance; complete recall at "
        "N = d²/96; the exponent of N at 99% accuracy against d.",
        uncached_tasks(measure_hebbian, seeds, dim=dim, facts=facts, dims=list(dims)),
        judge,
    )


def measure_low_rank(
    *, dim: int, facts: int, ranks: Sequence[int], dims: Sequence[int], seed: int
) -> dict[str, Any]:
    """Measure margins at some ranks, accuracy at a safe size, and the capacity at m = d/2."""

    def builder(rank: int) -> Any:
        return lambda key, pairs: memories.low_rank(pairs, rank, key=key)

    moments = [margin_moments(builder(rank), facts, dim, seed, _DRAWS) for rank in ranks]
    return {
        "means": [each.mean for each in moments],
        "variances": [each.variance for each in moments],
        "safe_accuracy": mean_accuracy(builder(128), 64, 256, seed, 5),
        "stored": [
            facts_at_accuracy(builder(d // 2), [d**2 // 4 // load for load in _LOADS], d, seed, 6)
            for d in dims
        ],
    }


@register_claim("theorem-1b", order=(3, 20))
def theorem_1b(
    seeds: Sequence[int],
    dim: int = 64,
    facts: int = 96,
    ranks: Sequence[int] = (16, 48),
    dims: Sequence[int] = (96, 192),
) -> Claim:
    """Check Theorem 1 (b), on matrices of low rank."""

    def variance(rank: int) -> float:
        own, spread = 1 + 2 / rank, 1 / dim + (1 + 1 / dim) / rank
        return (1 + 1 / dim) * (own + spread) - 1 + (facts - 2) * 2 / dim * spread

    def judge(results: SeedResults) -> Finding:
        law = fit_values(
            [d**2 / 2 for _ in results for d in dims], [n for r in results for n in r["stored"]]
        )
        means, variances = (
            np.mean(column(results, name), axis=0) for name in ("means", "variances")
        )
        return Finding.from_checks(
            [
                *(
                    check_close(f"mean margin, m = {rank}", measured, 1, 0.05)
                    for rank, measured in zip(ranks, means, strict=True)
                ),
                *(
                    check_close(f"variance of margins, m = {rank}", measured, variance(rank), 0.12)
                    for rank, measured in zip(ranks, variances, strict=True)
                ),
                check_between(
                    "accuracy on 64 facts, d = 256, m = 128", minimum(results, "safe_accuracy"), 1
                ),
                check_exponent("facts at 99% against m·d, m = d/2", law, 0.85, 1.25),
            ]
        )

    return Claim(
        "theorem-1b",
        "A matrix of rank m stores N associations if m·d exceeds N up to logarithms.",
        "Theorem 1, second part",
        f"Margins over {_DRAWS} draws against their exact mean and variance at several ranks; "
        "complete recall at a safe size; the exponent of N at 99% accuracy against m·d.",
        uncached_tasks(
            measure_low_rank, seeds, dim=dim, facts=facts, ranks=list(ranks), dims=list(dims)
        ),
        judge,
    )


def measure_orthonormal(*, dim: int, facts: int, seed: int) -> dict[str, Any]:
    """Measure d orthonormal embeddings, whether d + 1 exist, and random ones beyond d."""
    import jax.random as jr

    from factmem.memories import embeddings

    keys = jr.split(jr.key(seed))
    pairs = memories.Associations.draw(dim, dim, embedding=embeddings.orthonormal, key=keys[0])
    score = memories.hebbian(pairs).score(pairs)
    try:
        embeddings.orthonormal(dim + 1, dim, key=keys[0])
        more = 1.0
    except FactmemError:
        more = 0.0
    random = memories.Associations.draw(facts, dim, key=keys[1])
    return {
        "accuracy": score.accuracy,
        "min_margin": score.min_margin,
        "more": more,
        "random_accuracy": memories.optimal_linear_memory(random).model.score(random).accuracy,
    }


@register_claim("orthonormal", order=(3, 30))
def orthonormal_embeddings(seeds: Sequence[int], dim: int = 32, facts: int = 128) -> Claim:
    """Compare orthonormal with random embeddings."""

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_between(f"accuracy on N = d = {dim} facts", minimum(results, "accuracy"), 1),
                check_close("their smallest margin", minimum(results, "min_margin"), 1, 1e-4),
                check_between("orthonormal embeddings beyond d", mean(results, "more"), 0, 0),
                check_between(
                    f"accuracy on N = {facts} facts with random embeddings",
                    minimum(results, "random_accuracy"),
                    1,
                ),
            ]
        )

    return Claim(
        "orthonormal",
        "Orthonormal embeddings store N = d associations and no more; random embeddings store far "
        "more.",
        "Section 3, remarks on Theorem 1",
        "The sum of outer products on d orthonormal keys and values; a draw of d + 1 is rejected; "
        f"the optimal matrix on {facts} random embeddings.",
        uncached_tasks(measure_orthonormal, seeds, dim=dim, facts=facts),
        judge,
    )


def measure_shared_answers(*, dim: int, few: int, many: int, seed: int) -> dict[str, Any]:
    """Measure memories with two outputs, Hebbian and optimal, and optimal ones with N outputs."""
    import jax.random as jr

    def optimal(facts: int, outputs: int | None) -> tuple[float, Any]:
        pairs = memories.Associations.draw(facts, dim, outputs, key=jr.key(seed))
        result = memories.optimal_linear_memory(pairs)
        return result.model.score(pairs).accuracy, result.feasibility

    pairs = memories.Associations.draw(many, dim, 2, key=jr.key(seed))
    return {
        "few": optimal(few, 2)[0],
        "infeasible": float(optimal(many, 2)[1] is memories.Feasibility.INFEASIBLE),
        "injective": optimal(many, None)[0],
        "hebbian": memories.hebbian(pairs).score(pairs).accuracy,
    }


@register_claim("shared-answers", order=(3, 50))
def shared_answers(seeds: Sequence[int], dim: int = 32) -> Claim:
    """Check that linear memories need distinct answers."""
    few, many = 3 * dim // 2, 4 * dim

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_between(
                    f"accuracy on 1.5 d = {few} facts, 2 outputs", minimum(results, "few"), 1
                ),
                check_between(
                    f"proofs that no matrix stores 4 d = {many}", mean(results, "infeasible"), 1
                ),
                check_between(
                    "accuracy on 4 d facts, 4 d outputs", minimum(results, "injective"), 1
                ),
                check_between(
                    "accuracy of outer products on 4 d", mean(results, "hebbian"), high=0.9
                ),
            ]
        )

    return Claim(
        "shared-answers",
        "If answers are not distinct, a linear memory stores only about d associations.",
        "Section 3, remarks on Theorem 1",
        f"Two outputs, d = {dim}: the optimal matrix stores 1.5 d associations, none stores 4 d "
        "(proved); with N outputs 4 d are stored.",
        uncached_tasks(measure_shared_answers, seeds, dim=dim, few=few, many=many),
        judge,
    )


def measure_gradient_step(*, dim: int, facts: int, rank: int, seed: int) -> dict[str, Any]:
    """Measure the relative distance of one gradient step from zero to the constructions."""
    import equinox as eqx
    import jax.numpy as jnp
    import jax.random as jr

    keys = jr.split(jr.key(seed))
    pairs = memories.Associations.draw(facts, dim, key=keys[0])

    def distance(step: Any, built: Any) -> float:
        return float(jnp.linalg.norm(step - built) / jnp.linalg.norm(built))

    zero = memories.LinearMemory(jnp.zeros((dim, dim)))
    step = -eqx.filter_grad(memories.correlation_loss)(zero, pairs).matrix
    low = memories.low_rank(pairs, rank, key=keys[1])
    empty = memories.LowRankMemory(jnp.zeros((dim, rank)), low.right)
    low_step = -eqx.filter_grad(memories.correlation_loss)(empty, pairs).left
    return {
        "full": distance(step, memories.hebbian(pairs).matrix),
        # The construction divides by the rank, which does not change the argmax.
        "low_rank": distance(low_step / rank, low.left),
    }


@register_claim("one-gradient-step", order=(3, 60))
def one_gradient_step(
    seeds: Sequence[int], dim: int = 48, facts: int = 80, rank: int = 12
) -> Claim:
    """Check that the constructions are gradient steps."""

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_between(
                    "relative distance, full matrix", maximum(results, "full"), high=1e-5
                ),
                check_between(
                    "relative distance, low rank", maximum(results, "low_rank"), high=1e-5
                ),
            ]
        )

    return Claim(
        "one-gradient-step",
        "Both constructions of Theorem 1 are one gradient step on the correlation loss from zero.",
        "Section 3, remarks on Theorem 1",
        "Automatic differentiation of −Σ ⟨u, F(e)⟩ at W = 0, and at U = 0 of W = U Vᵀ.",
        uncached_tasks(measure_gradient_step, seeds, dim=dim, facts=facts, rank=rank),
        judge,
    )
