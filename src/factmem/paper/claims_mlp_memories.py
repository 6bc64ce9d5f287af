"""Section 3 of the paper, Theorem 2: what MLP memories store.

Each claim is a function of its seeds and sizes; what it measures stands before it. Importing this
loads no jax.
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
from factmem.paper.drawn_memories import facts_at_accuracy, margin_moments, mean_accuracy
from factmem.paper.memory_searches import (
    Ends,
    ends,
    few_output_searches,
    with_logarithm,
)
from factmem.paper.results import Results, column, least, mean, most

__all__ = [
    "features_against_tangents",
    "few_outputs",
    "tangents_are_learned",
    "theorem_2",
]

_DRAWS = 30


def measure_mlps(*, widths: Sequence[int], seed: int) -> dict[str, Any]:
    """Both constructions at safe sizes, moments of their margins, and growth with the width."""

    def features(width: int) -> Any:
        return lambda key, pairs: memories.hermite_memory(key, pairs, width)

    def tangents(width: int) -> Any:
        return lambda key, pairs: memories.paired_neurons(
            memories.tangent_memory(key, pairs, width)
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


def theorem_2(seeds: Sequence[int], widths: Sequence[int] = (128, 512)) -> Claim:
    """Theorem 2."""
    variance = _variance_of_features(dim=64, facts=64, width=64)

    def judge(results: Results) -> Finding:
        law = fitted(
            [m for _ in results for m in widths], [n for r in results for n in r["stored"]]
        )
        return Finding.of(
            [
                close("mean of random features' margins", mean(results, "mean"), 1, 0.06),
                close("variance of their margins", mean(results, "variance"), variance, 0.12),
                close(
                    "mean of tangents' margins", mean(results, "tangent_mean"), math.sqrt(3), 0.06
                ),
                between("recall by random features, safe size", least(results, "features"), 1),
                between("recall by tangents, 8 outputs", least(results, "tangents"), 1),
                exponent("facts at 99 % against m, d = 64", law, 0.85, 1.15),
            ]
        )

    return Claim(
        "theorem-2",
        "An MLP of width m stores N associations, whatever f*, as soon as m·d exceeds N times "
        "logarithms.",
        "Theorem 2",
        "Random features (degree 2) and tangents (degree 2): moments of margins against theory, "
        "recall at safe sizes, the exponent of N at 99 % against m.",
        unstored_tasks(measure_mlps, seeds, widths=list(widths)),
        judge,
    )


def _variance_of_features(dim: int, facts: int, width: int, others: float = 0.1) -> float:
    """Of margins of random features of degree 2, σ = h₂ + 0.1 (h₀ + h₁), f* injective."""
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
    """Gradient descent of the displacements alone, from zero, on the cross-entropy."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from factmem._core.random import normal
    from factmem.memories.decoding import cross_entropy_of_one, loss_of_each

    keys = jr.split(jr.key(seed), 4)
    pairs = memories.Associations.draw(keys[0], facts, dim, outputs)
    built = memories.tangent_memory(keys[1], pairs, width)
    scale = jnp.sqrt(jnp.mean(built.displacement**2))

    def at(displacement: Any) -> Any:
        return eqx.tree_at(lambda m: m.displacement, built, displacement)

    @jax.jit
    def loss(displacement: Any) -> Any:
        outputs = at(displacement).outputs(pairs.keys)
        losses = loss_of_each(cross_entropy_of_one, outputs, pairs.values, pairs.target)
        return jnp.mean(losses)

    first, second = (scale * normal(key, built.displacement.shape) for key in keys[2:])
    ends = (loss(first) + loss(second)) / 2
    descent = [jnp.zeros_like(first)]
    losses = []
    slope = jax.jit(jax.value_and_grad(loss))
    for _ in range(steps):
        value, gradient = slope(descent[-1])
        losses.append(float(value))
        descent = [descent[-1] - rate * gradient]
    sums = at(first + second).outputs(pairs.keys) - at(first).outputs(pairs.keys)
    alone = at(second).outputs(pairs.keys)
    return {
        "start": losses[0],
        "end": losses[-1],
        "rises": float(max(np.diff(losses), default=0.0)),
        "accuracy": at(descent[-1]).score(pairs).accuracy,
        "not_linear": float(jnp.linalg.norm(sums - alone) / jnp.linalg.norm(alone)),
        "convexity": float(ends - loss((first + second) / 2)),
    }


def tangents_are_learned(
    seeds: Sequence[int],
    dim: int = 32,
    facts: int = 64,
    outputs: int = 8,
    width: int = 128,
    steps: int = 400,
    rate: float = 30.0,
) -> Claim:
    """The tangent memory by gradient descent."""

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between("recall after training", least(results, "accuracy"), 1),
                close("loss at zero", mean(results, "start"), math.log(outputs), 1e-4),
                between("largest rise of the loss in a step", most(results, "rises"), most=1e-5),
                between("departure from linearity", most(results, "not_linear"), most=1e-4),
                between("mean of ends over the middle", least(results, "convexity"), 0),
            ]
        )

    return Claim(
        "tangents-learned",
        "The tangent memory is linear in what is trained, so gradient descent on a convex loss "
        "learns it.",
        "Section 3, remarks on Theorem 2",
        f"Cross-entropy of the displacements alone, {steps} steps of plain gradient descent from "
        "zero: it falls at every step and everything is recalled; F is linear, and the loss at the "
        "middle of two points is below its mean there.",
        unstored_tasks(
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
    """Accuracy of both on two outputs, with as many neurons and Gaussian rows each."""

    def features(key: Any, pairs: Any) -> Any:
        return memories.hermite_memory(key, pairs, width)

    def tangents(key: Any, pairs: Any) -> Any:
        return memories.tangent_memory(key, pairs, width)

    return {
        "features": mean_accuracy(features, facts, dim, seed, 1, outputs=2),
        "tangents": mean_accuracy(tangents, facts, dim, seed, 1, outputs=2),
    }


def features_against_tangents(
    seeds: Sequence[int], dim: int = 48, facts: int = 400, width: int = 400
) -> Claim:
    """Why the proof uses tangents."""

    def judge(results: Results) -> Finding:
        return Finding.of(
            [
                between("recall by tangents", mean(results, "tangents"), 0.88),
                between("recall by random features", mean(results, "features"), most=0.88),
                between("smallest difference", _gap(results), 0.15),
            ]
        )

    return Claim(
        "tangents-share-answers",
        "Where many keys share an answer, tangents store what random features of that width do "
        "not.",
        "Section 3 and the proof of Theorem 2",
        f"Two outputs, d = {dim}, N = {facts}, {width} neurons each: the share recalled.",
        unstored_tasks(measure_features_and_tangents, seeds, dim=dim, facts=facts, width=width),
        judge,
    )


def _gap(results: Results) -> float:
    return float(np.min(column(results, "tangents") - column(results, "features")))


def few_outputs(
    seeds: Sequence[int], dim: int = 8, widths: Sequence[int] = (32, 128), outputs: int = 8
) -> Claim:
    """Figure 6: a fixed number of outputs against as many as there are keys."""

    def judge(results: Mapping[str, Sequence[Any]]) -> Finding:
        few, many = (_sizes_and_facts(results[name]) for name in ("few", "many"))
        flat, bent = fitted_brackets(*few), fitted_brackets(*many)
        straight = fitted_brackets(many[0], [with_logarithm(each) for each in many[1]])
        return Finding.of(
            [
                exponent("M fixed: N against m·d", flat, 0.9, 1.1),
                exponent("M = N: N ln N against m·d", straight, 0.85, 1.15),
                between("difference of the exponents of N", flat.exponent - bent.exponent, 0.1),
            ]
        )

    return Claim(
        "few-outputs",
        "With a fixed number of outputs an MLP's N grows in proportion to m·d: the logarithm is "
        "gone.",
        "Figure 6, beside the right of Figure 1",
        f"The largest N that fitted ReLU MLPs of d = {dim} recall entirely, weights of 16 bits, at "
        f"m = {', '.join(map(str, widths))}: exponents for M = {outputs} and for M = N; at length "
        "for the paper's M = 32 and m = d.",
        MeasurementGroup(
            {
                name: few_output_searches(seeds, [(dim, width) for width in widths], each)
                for name, each in (("few", outputs), ("many", None))
            }
        ),
        judge,
        at_length=MeasurementGroup(
            {
                name: few_output_searches(seeds, [(d, d) for d in (16, 24, 32)], each, 1.01)
                for name, each in (("few", 32), ("many", None))
            }
        ),
    )


def _sizes_and_facts(found: Sequence[Any]) -> tuple[list[float], list[Ends]]:
    """m·d, and the brackets of N."""
    pairs = [
        (float(each.problem.dim * each.problem.width), ends(seed.bracket))
        for each in found
        for seed in each.seeds
    ]
    return [size for size, _ in pairs], [bracket for _, bracket in pairs]
