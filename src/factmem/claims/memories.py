"""Section 3 of the paper: what linear and MLP memories store.

Each claim is a function of its seeds and sizes; what it measures stands before it. Importing this
loads no jax.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factmem import capacity, embeddings, memories
from factmem.capacity.memories import LinearQuestion, MLPQuestion
from factmem.claims.claim import (
    Claim,
    Finding,
    between,
    close,
    exponent,
    fitted,
    fitted_brackets,
)
from factmem.claims.drawn_memories import facts_at_accuracy, margin_moments, mean_accuracy
from factmem.claims.measurement import Together, direct
from factmem.claims.results import Results, column, least, mean, most
from factmem.errors import FactmemError

__all__ = [
    "COARSE",
    "bracket_middle",
    "ends",
    "exact_matching",
    "features_against_tangents",
    "few_output_searches",
    "few_outputs",
    "limit_of_linear_memories",
    "matrix_searches",
    "one_gradient_step",
    "orthonormal_embeddings",
    "quantisation",
    "shared_answers",
    "tangents_are_learnt",
    "theorem_1a",
    "theorem_1b",
    "theorem_2",
    "with_logarithm",
]

COARSE = 1.15
"""Brackets of quick searches, as upper/lower: their middle is off by 7 % at most."""
Ends = tuple[float, float] | None
_DRAWS = 30
_LOADS = (64, 40, 28, 20)
"""Numbers in a memory per association, around where the outer products begin to err."""


# ---- Theorem 1 -----------------------------------------------------------------------------------


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
        direct(measure_hebbian, seeds, dim=dim, facts=facts, dims=list(dims)),
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
        direct(measure_low_rank, seeds, dim=dim, facts=facts, ranks=list(ranks), dims=list(dims)),
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
        direct(measure_orthonormal, seeds, dim=dim, facts=facts),
        judge,
    )


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
            [float(each.question.dim) for each in found for _ in each.seeds],
            [with_logarithm(ends(seed.bracket)) for each in found for seed in each.seeds],
        )
        stored = bracket_middle(found[-1].seeds[-1].bracket) / found[-1].question.dim
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
        Together(
            {
                "exact": direct(measure_exact_matching, seeds, dims=list(exact_dims)),
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
                between(f"N ln N / d² at d = {each.question.dim}", load, 0.5, 1.6)
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


def matrix_searches(
    seeds: Sequence[int], dims: Sequence[int], ratio: float = COARSE
) -> capacity.Searches:
    """What the best matrices store, each proved; several claims rest on the same ones."""
    return capacity.Searches([LinearQuestion(dim, ratio=ratio) for dim in dims], seeds)


def _load(found: Any) -> float:
    facts = _stored(found)
    return facts * math.log(max(facts, 1)) / found.question.dim**2


def _stored(found: Any) -> float:
    """The median over seeds."""
    return float(np.median([bracket_middle(seed.bracket) for seed in found.seeds]))


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
        direct(measure_shared_answers, seeds, dim=dim, few=few, many=many),
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
        direct(measure_gradient_step, seeds, dim=dim, facts=facts, rank=rank),
        judge,
    )


# ---- Theorem 2 -----------------------------------------------------------------------------------


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
        direct(measure_mlps, seeds, widths=list(widths)),
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


def measure_learnt_tangents(
    *, dim: int, facts: int, outputs: int, width: int, steps: int, rate: float, seed: int
) -> dict[str, Any]:
    """Gradient descent of the displacements alone, from zero, on the cross-entropy."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from factmem.decoding import cross_entropy_of_one, loss_of_each

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

    first, second = (scale * jr.normal(key, built.displacement.shape) for key in keys[2:])
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


def tangents_are_learnt(
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
        "tangents-learnt",
        "The tangent memory is linear in what is trained, so gradient descent on a convex loss "
        "learns it.",
        "Section 3, remarks on Theorem 2",
        f"Cross-entropy of the displacements alone, {steps} steps of plain gradient descent from "
        "zero: it falls at every step and everything is recalled; F is linear, and the loss at the "
        "middle of two points is below its mean there.",
        direct(
            measure_learnt_tangents,
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
        direct(measure_features_and_tangents, seeds, dim=dim, facts=facts, width=width),
        judge,
    )


def _gap(results: Results) -> float:
    return float(np.min(column(results, "tangents") - column(results, "features")))


def measure_quantisation(*, dims: Sequence[int], seed: int) -> dict[str, Any]:
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


def quantisation(seeds: Sequence[int], dims: Sequence[int] = (96, 160, 256)) -> Claim:
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
        "quantisation",
        "The linear memory survives rounding its weights to multiples of about 1/d: O(log d) bits "
        "for each weight, and Õ(N) in all.",
        "Section 3 and the corollary on bounded bits",
        "Outer products at N = d²/128: every margin moves by at most ε d, all is recalled at "
        "ε = 1/(4d), and the fewest bits do not grow with d.",
        direct(measure_quantisation, seeds, dims=list(dims)),
        judge,
    )


def few_outputs(
    seeds: Sequence[int], dim: int = 8, widths: Sequence[int] = (16, 64), outputs: int = 8
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
                between("difference of the exponents of N", flat.exponent - bent.exponent, 0.05),
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
        Together(
            {
                name: few_output_searches(seeds, [(dim, width) for width in widths], each)
                for name, each in (("few", outputs), ("many", None))
            }
        ),
        judge,
        at_length=Together(
            {
                name: few_output_searches(seeds, [(d, d) for d in (16, 24, 32)], each, 1.01)
                for name, each in (("few", 32), ("many", None))
            }
        ),
    )


def few_output_searches(
    seeds: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    outputs: int | None,
    ratio: float = COARSE,
) -> capacity.Searches:
    """What fitted MLPs of (d, m) store; several claims rest on the same ones."""
    return capacity.Searches(
        [MLPQuestion(dim, width, outputs=outputs, ratio=ratio) for dim, width in shapes], seeds
    )


def _sizes_and_facts(found: Sequence[Any]) -> tuple[list[float], list[Ends]]:
    """m·d, and the brackets of N."""
    pairs = [
        (float(each.question.dim * each.question.width), ends(seed.bracket))
        for each in found
        for seed in each.seeds
    ]
    return [size for size, _ in pairs], [bracket for _, bracket in pairs]


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
