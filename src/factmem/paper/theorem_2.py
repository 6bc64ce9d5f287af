"""Theorem 2: the capacity of MLP associative memories.

Importing this module does not load jax.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from factmem import memories
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

__all__ = ["features_against_tangents", "tangents_are_learned", "theorem_2"]

_DRAWS = 30


def measure_mlps(*, widths: Sequence[int], seed: int) -> dict[str, Any]:
    """Measure both constructions: accuracy at safe sizes, moments of margins, capacity by width."""

    def features(width: int) -> Any:
        return lambda key, pairs: memories.hermite_memory(pairs, width, key=key)

    def tangents(width: int) -> Any:
        return lambda key, pairs: memories.paired_neurons(
            memories.tangent_memory(pairs, width, key=key)
        )

    moments = margin_moments(features(64), 64, 64, seed, _DRAWS)
    return {
        "mean": moments.mean,
        "variance": moments.variance,
        "tangent_mean": margin_moments(tangents(512), 48, 48, seed, 4).mean,
        "features": mean_accuracy(features(512), 128, 64, seed, 1),
        "tangents": mean_accuracy(tangents(1024), 64, 48, seed, 1, outputs=8),
        "stored": [
            facts_at_accuracy(
                features(width), [64 * width // load for load in (128, 64, 40, 24)], 64, seed, 2
            )
            for width in widths
        ],
    }


@register_claim("theorem-2", order=(3, 80))
def theorem_2(seeds: Sequence[int], widths: Sequence[int] = (128, 512)) -> Claim:
    """Check Theorem 2."""
    variance = _feature_variance(dim=64, facts=64, width=64)

    def judge(results: SeedResults) -> Finding:
        law = fit_values(
            [m for _ in results for m in widths], [n for r in results for n in r["stored"]]
        )
        return Finding.from_checks(
            [
                check_close("mean margin of random features", mean(results, "mean"), 1, 0.06),
                check_close("variance of their margins", mean(results, "variance"), variance, 0.12),
                check_close(
                    "mean margin of tangents", mean(results, "tangent_mean"), math.sqrt(3), 0.06
                ),
                check_between(
                    "accuracy of random features, safe size", minimum(results, "features"), 1
                ),
                check_between("accuracy of tangents, 8 outputs", minimum(results, "tangents"), 1),
                check_exponent("facts at 99% against m, d = 64", law, 0.85, 1.15),
            ]
        )

    return Claim(
        "theorem-2",
        "An MLP of width m stores N associations, whatever f*, if m·d exceeds N up to logarithms.",
        "Theorem 2",
        "Random features (degree 2) and tangents (degree 2): moments of margins against theory, "
        "complete recall at safe sizes, the exponent of N at 99% against m.",
        uncached_tasks(measure_mlps, seeds, widths=list(widths)),
        judge,
    )


def _feature_variance(dim: int, facts: int, width: int, others: float = 0.1) -> float:
    """Return the margin variance of random features with σ = h₂ + 0.1 (h₀ + h₁), f* injective."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    second = (nodes**2 - 1) / math.sqrt(2)
    activation = second + others * (1 + nodes)
    crossed = float(weights @ (activation**2 * second**2))
    squared = float(weights @ activation**2)
    sharing = 1  # the key of the other answer
    pull = 2 * facts / dim + sharing
    moment = 3 / (dim * (dim + 2))
    return (crossed - 1 + pull * squared) / width + 1 / dim + pull * moment


def measure_learned_tangents(
    *, dim: int, facts: int, outputs: int, width: int, steps: int, rate: float, seed: int
) -> dict[str, Any]:
    """Train the displacements of a tangent memory from zero, by plain gradient descent."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from factmem._core.random import normal
    from factmem.memories.decoding import cross_entropy_from_gaps, per_key_losses

    keys = jr.split(jr.key(seed), 4)
    pairs = memories.Associations.draw(facts, dim, outputs, key=keys[0])
    built = memories.tangent_memory(pairs, width, key=keys[1])
    scale = jnp.sqrt(jnp.mean(built.displacement**2))

    def memory_at(displacement: Any) -> Any:
        return eqx.tree_at(lambda m: m.displacement, built, displacement)

    @jax.jit
    def loss(displacement: Any) -> Any:
        outputs = memory_at(displacement).outputs(pairs.keys)
        losses = per_key_losses(cross_entropy_from_gaps, outputs, pairs.values, pairs.target)
        return jnp.mean(losses)

    first, second = (scale * normal(key, built.displacement.shape) for key in keys[2:])
    mean_of_ends = (loss(first) + loss(second)) / 2
    displacement = jnp.zeros_like(first)
    losses = []
    value_and_gradient = jax.jit(jax.value_and_grad(loss))
    for _ in range(steps):
        value, gradient = value_and_gradient(displacement)
        losses.append(float(value))
        displacement = displacement - rate * gradient
    sums = memory_at(first + second).outputs(pairs.keys) - memory_at(first).outputs(pairs.keys)
    alone = memory_at(second).outputs(pairs.keys)
    return {
        "start": losses[0],
        "end": losses[-1],
        "largest_rise": float(max(np.diff(losses), default=0.0)),
        "accuracy": memory_at(displacement).score(pairs).accuracy,
        "nonlinearity": float(jnp.linalg.norm(sums - alone) / jnp.linalg.norm(alone)),
        "convexity": float(mean_of_ends - loss((first + second) / 2)),
    }


@register_claim("tangents-learned", order=(3, 90))
def tangents_are_learned(
    seeds: Sequence[int],
    dim: int = 32,
    facts: int = 64,
    outputs: int = 8,
    width: int = 128,
    steps: int = 400,
    rate: float = 30.0,
) -> Claim:
    """Check that gradient descent learns the tangent memory."""

    def judge(results: SeedResults) -> Finding:
        return Finding.from_checks(
            [
                check_between("accuracy after training", minimum(results, "accuracy"), 1),
                check_close("loss at zero", mean(results, "start"), math.log(outputs), 1e-4),
                check_between(
                    "largest rise of the loss in a step",
                    maximum(results, "largest_rise"),
                    high=1e-5,
                ),
                check_between(
                    "deviation from linearity", maximum(results, "nonlinearity"), high=1e-4
                ),
                check_between(
                    "mean loss of two points minus loss at their midpoint",
                    minimum(results, "convexity"),
                    0,
                ),
            ]
        )

    return Claim(
        "tangents-learned",
        "The tangent memory is linear in its trained weights, so gradient descent on a convex loss "
        "learns it.",
        "Section 3, remarks on Theorem 2",
        f"Cross-entropy of the displacements alone, {steps} steps of plain gradient descent from "
        "zero: the loss falls at every step and everything is recalled; F is linear, and the loss "
        "at the midpoint of two points is below their mean loss.",
        uncached_tasks(
            measure_learned_tangents,
            seeds,
            dim=dim,
            facts=facts,
            outputs=outputs,
            width=width,
            steps=steps,
            rate=rate,
        ),
        judge,
    )


def measure_features_and_tangents(*, dim: int, facts: int, width: int, seed: int) -> dict[str, Any]:
    """Measure the accuracy of random features and tangents of the same width on two outputs."""

    def features(key: Any, pairs: Any) -> Any:
        return memories.hermite_memory(pairs, width, key=key)

    def tangents(key: Any, pairs: Any) -> Any:
        return memories.tangent_memory(pairs, width, key=key)

    return {
        "features": mean_accuracy(features, facts, dim, seed, 1, outputs=2),
        "tangents": mean_accuracy(tangents, facts, dim, seed, 1, outputs=2),
    }


@register_claim("tangents-share-answers", order=(3, 100))
def features_against_tangents(
    seeds: Sequence[int], dim: int = 48, facts: int = 400, width: int = 400
) -> Claim:
    """Check that tangents store more than random features if many keys share an answer."""

    def judge(results: SeedResults) -> Finding:
        gap = float(np.min(column(results, "tangents") - column(results, "features")))
        return Finding.from_checks(
            [
                check_between("accuracy of tangents", mean(results, "tangents"), 0.88),
                check_between("accuracy of random features", mean(results, "features"), high=0.88),
                check_between("smallest difference in accuracy", gap, 0.15),
            ]
        )

    return Claim(
        "tangents-share-answers",
        "If many keys share an answer, tangents store what random features of the same width do "
        "not.",
        "Section 3 and the proof of Theorem 2",
        f"Two outputs, d = {dim}, N = {facts}, {width} neurons each: the accuracy.",
        uncached_tasks(measure_features_and_tangents, seeds, dim=dim, facts=facts, width=width),
        judge,
    )
