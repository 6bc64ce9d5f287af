"""Tangent memories (Theorem 2, appendix), paired neurons, and shared answers."""

from math import sqrt

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.memories import (
    Associations,
    MLPMemory,
    TangentMemory,
    hermite_memory,
    paired_neurons,
    tangent_memory,
)
from factmem.memories.activations import HermitePolynomial


@pytest.mark.parametrize("degree", [0, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_mean_over_neurons_is_the_power_kernel(degree, sign):
    """√(k+1) |c_{k+1}| Σ_x u_f*(x) ⟨e, e_x⟩^{k+1}, at a key that is not stored."""
    pairs = Associations.draw(5, 4, target="permutation", key=jr.key(0))
    key_vector = Associations.draw(1, 4, key=jr.key(5)).keys[0]
    activation = HermitePolynomial((0.2,) * (degree + 1) + (0.8 * sign,))

    @jax.jit
    def outputs_of_draws(keys):
        return jax.lax.map(
            lambda key: tangent_memory(pairs, 4096, degree, activation, key=key)(key_vector), keys
        )

    outputs = np.asarray(outputs_of_draws(jr.split(jr.key(1), 40)), float)
    keys, answers = np.asarray(pairs.keys, float), np.asarray(pairs.answers, float)
    overlaps = keys @ np.asarray(key_vector, float)
    expected = sqrt(degree + 1) * 0.8 * answers.T @ overlaps ** (degree + 1)
    error = outputs.std(axis=0) / sqrt(40)
    assert (np.abs(outputs.mean(axis=0) - expected) < 4 * error).all()
    # Small enough to detect a wrong sign, or a factor of two or √(k+1).
    assert error.max() < 0.1 * np.linalg.norm(expected)


def test_displacements_match_the_formula():
    pairs = Associations.draw(5, 3, target="permutation", key=jr.key(0))
    memory = tangent_memory(pairs, width=4, degree=2, key=jr.key(1))
    keys, answers = np.asarray(pairs.keys, float), np.asarray(pairs.answers, float)
    for v, w, p in zip(
        *map(np.asarray, (memory.out, memory.into, memory.displacement)), strict=True
    ):
        expected = sum(
            (v @ u) * ((w @ e) ** 2 - 1) / sqrt(2) * e for u, e in zip(answers, keys, strict=True)
        )
        np.testing.assert_allclose(p, expected, rtol=1e-3, atol=1e-5)


def test_tangent_is_the_derivative_of_an_mlp(float64):
    pairs = Associations.draw(5, 4, key=jr.key(0))
    memory = to_float64(tangent_memory(pairs, width=8, key=jr.key(1)))
    key = jnp.asarray(pairs.keys[0], jnp.float64)

    def shifted(step):
        into = memory.into + step * memory.displacement
        return MLPMemory(into, memory.out / 8, memory.activation)(key)

    _, derivative = jax.jvp(shifted, (jnp.float64(0),), (jnp.float64(1),))
    np.testing.assert_allclose(memory(key), derivative, rtol=1e-10)


def to_float64(memory):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), memory)


def test_paired_neurons_converge_quadratically_in_the_step(float64):
    pairs = Associations.draw(48, 24, key=jr.key(0))
    tangent = to_float64(tangent_memory(pairs, width=64, key=jr.key(1)))
    keys = jnp.asarray(pairs.keys, jnp.float64)
    exact = jax.vmap(tangent)(keys)

    def error(step):
        outputs = jax.vmap(paired_neurons(tangent, step))(keys)
        return float(jnp.linalg.norm(outputs - exact) / jnp.linalg.norm(exact))

    assert error(1e-1) / error(1e-2) == pytest.approx(100, rel=0.05)
    assert error(1e-2) / error(1e-3) == pytest.approx(100, rel=0.05)
    # The leading error term is (η²/6)(1/m) Σ v σ'''(⟨w, z⟩) ⟨p, z⟩³.
    third = tangent.activation.derivative().derivative().derivative()

    def leading_term(key):
        weights = third(tangent.into @ key) * (tangent.displacement @ key) ** 3
        return tangent.out.T @ weights / (6 * 64)

    difference = jax.vmap(paired_neurons(tangent, 1e-2))(keys) - exact
    np.testing.assert_allclose(
        difference, 1e-4 * jax.vmap(leading_term)(keys), rtol=1e-3, atol=1e-9
    )


def test_mean_and_variance_of_margins():
    """To leading order in 1/d; the remainder was measured to be about 6/d."""
    d, m, n, c, k = 192, 200, 1600, 0.5, 2
    activation = HermitePolynomial((c,) * 4)

    def margins(key):
        first, second = jr.split(key)
        pairs = Associations.draw(n, d, key=first)
        outputs = jax.vmap(tangent_memory(pairs, m, k, activation, key=second))(pairs.keys)
        return jnp.sum((pairs.values - jnp.roll(pairs.values, 1, axis=0)) * outputs, axis=1)

    samples = np.asarray(jax.lax.map(margins, jr.split(jr.key(0), 40)), float).ravel()
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    slope = np.asarray(activation.derivative()(jnp.asarray(nodes, jnp.float32)), float)
    power = (nodes**2 - 1) / sqrt(2)
    kappa, s2 = weights @ (slope * power) ** 2, weights @ slope**2
    moment = 15 / (d * (d + 2) * (d + 4))
    square = (k + 1) * c**2
    variance = (4 * kappa - square) / m + 2 * s2 * (n + 1) / (m * d)
    variance += square * (1 / d + (2 * n / d + 1) * moment)
    assert samples.mean() == pytest.approx(sqrt(3) * c, abs=0.03)
    assert samples.var() == pytest.approx(variance * (1 + 6 / d), rel=0.05)


def test_stores_shared_answers_where_random_features_fail():
    """Accuracy 0.93 to 0.98 instead of 0.6 to 0.7 (d = 48, two answers, m = N = 400, c = ½)."""
    activation = HermitePolynomial((0.5,) * 4)
    tangent, features = [], []
    for seed in range(3):
        first, second = jr.split(jr.key(seed))
        pairs = Associations.draw(400, 48, outputs=2, key=first)
        options = {"width": 400, "degree": 2, "activation": activation}
        tangent.append(tangent_memory(pairs, **options, key=second).score(pairs).accuracy)
        features.append(hermite_memory(pairs, **options, key=second).score(pairs).accuracy)
    assert min(tangent) > 0.9
    assert max(features) < 0.75


SIZES = [(48, 48, 48, 1024), (128, 64, 128, 2048), (8, 48, 64, 1024), (2, 64, 256, 4096)]


def accuracy(seed, outputs, dim, facts, width):
    first, second = jr.split(jr.key(seed))
    pairs = Associations.draw(facts, dim, outputs, key=first)
    return paired_neurons(tangent_memory(pairs, width, key=second)).score(pairs).accuracy


@pytest.mark.parametrize("size", SIZES)
def test_large_widths_recall_all_associations(size):
    assert accuracy(0, *size) == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_large_widths_recall_all_associations_for_most_seeds(size):
    accuracies = [accuracy(seed, *size) for seed in range(20)]
    assert sum(a == 1 for a in accuracies) >= 17
    assert np.mean(accuracies) >= 0.995


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"width": 4, "degree": 3}, "degree must be even"),
        ({"width": 4, "degree": -2}, "degree must be even"),
        ({"width": 4, "degree": 100}, "below 100"),
        ({"width": 4, "degree": 2, "activation": HermitePolynomial((1.0,) * 3)}, "of degree 3"),
        (
            {"width": 4, "degree": 2, "activation": HermitePolynomial((1.0, 1.0, 1.0, 0.0))},
            "of degree 3",
        ),
    ],
)
def test_invalid_options_are_rejected(options, message):
    pairs = Associations.draw(4, 3, key=jr.key(0))
    with pytest.raises(FactmemError, match=message):
        tangent_memory(pairs, **options, key=jr.key(1))


def test_only_the_coefficient_above_the_degree_must_be_nonzero():
    pairs = Associations.draw(4, 3, key=jr.key(0))
    activation = HermitePolynomial((1.0, 1.0, 0.0, 1.0))
    assert tangent_memory(pairs, 4, 2, activation, key=jr.key(1)).activation is activation
    assert tangent_memory(pairs, 4, 2, key=jr.key(1)).activation.coefficients == (
        0.1,
        0.1,
        0.1,
        1.0,
    )


def test_rejects_a_step_of_zero():
    one = jnp.ones((1, 2))
    with pytest.raises(FactmemError, match="step must be positive"):
        paired_neurons(TangentMemory(one, one, one, HermitePolynomial((1.0,))), step=0.0)
