"""Theorem 2 with random features: the limiting kernel and the margins."""

from math import sqrt

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.memories import Associations, hermite_memory, mixed_activation
from factmem.memories.activations import HermitePolynomial, hermite


def limit(pairs, activation, degree, key):
    """Compute |c_k| Σ_x u_f*(x) ⟨e, e_x⟩^k with a loop, in float64."""
    keys, answers = np.asarray(pairs.keys, float), np.asarray(pairs.answers, float)
    total = np.zeros(pairs.dim)
    for e, u in zip(keys, answers, strict=True):
        total += u * (e @ np.asarray(key, float)) ** degree
    return abs(activation.coefficients[degree]) * total


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_converges_to_powers_of_inner_products(degree, sign):
    """The error decreases as 1/√m at a key that is not stored."""
    pairs = Associations.draw(6, 4, target="permutation", key=jr.key(0))
    key_vector = Associations.draw(1, 4, key=jr.key(5)).keys[0]
    activation = HermitePolynomial((0.3,) * degree + (0.7 * sign, 0.2))
    expected = limit(pairs, activation, degree, key_vector)

    def error(width):
        @jax.jit
        def outputs_of_draws(keys):
            return jax.lax.map(
                lambda key: hermite_memory(pairs, width, degree, activation, key=key)(key_vector),
                keys,
            )

        outputs = np.asarray(outputs_of_draws(jr.split(jr.key(1), 64)), float)
        return np.sqrt(np.mean(np.sum((outputs - expected) ** 2, axis=1)))

    narrow, wide = error(2**8), error(2**14)
    assert wide < 0.06 * max(1, np.linalg.norm(expected)) * (1 + degree)
    # 1/64 of the variance; a wrong factor or sign would leave a bias.
    assert narrow / wide == pytest.approx(8, rel=0.3)


def test_mean_of_the_kernel():
    """E σ(⟨w, e⟩) h_k(⟨w, e'⟩) = c_k ⟨e, e'⟩^k within 4 standard errors of 2²⁰ features."""
    first, second = jnp.array([1.0, 0.0]), jnp.array([0.6, 0.8])
    weights = jr.normal(jr.key(0), (2**20, 2))
    activation = HermitePolynomial((0.1, 0.5, -0.4, 0.2))
    for degree in range(4):
        products = np.asarray(
            activation(weights @ first) * hermite(degree, weights @ second), float
        )
        expected = activation.coefficients[degree] * 0.6**degree
        assert products.mean() == pytest.approx(expected, abs=4 * products.std() / 2**10)


def test_mean_and_variance_of_margins():
    """The variance is 0.294 to leading order at d = N = m = 64 and k = 2."""
    d = n = m = 64
    activation = mixed_activation(2)

    def margins(key):
        first, second = jr.split(key)
        pairs = Associations.draw(n, d, key=first)
        outputs = jax.vmap(hermite_memory(pairs, m, key=second))(pairs.keys)
        gaps = pairs.values - jnp.roll(pairs.values, 1, axis=0)
        return jnp.sum(gaps * outputs, axis=1)

    samples = np.asarray(jax.lax.map(margins, jr.split(jr.key(0), 400)), float).ravel()
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    sigma = np.asarray(activation(jnp.asarray(nodes, jnp.float32)), float)
    power = np.asarray(hermite(2, jnp.asarray(nodes, jnp.float32)), float)
    fourth, norm = weights @ (sigma * power) ** 2, weights @ sigma**2
    moment = 3 / (d * (d + 2))
    variance = (fourth - 1 + (2 * n / d + 1) * norm) / m + 1 / d + (2 * n / d + 1) * moment
    assert variance == pytest.approx(0.294, abs=0.03)
    assert samples.mean() == pytest.approx(1, abs=0.02)
    assert samples.var() == pytest.approx(variance, rel=0.1)


def test_readout_matches_the_formula():
    pairs = Associations.draw(5, 3, target="permutation", key=jr.key(0))
    memory = hermite_memory(pairs, width=4, degree=2, key=jr.key(1))
    into = np.asarray(memory.into, float)
    for neuron in range(4):
        products = np.asarray(pairs.keys, float) @ into[neuron]
        polynomial = (products**2 - 1) / sqrt(2)
        expected = np.asarray(pairs.answers, float).T @ polynomial / 4
        np.testing.assert_allclose(memory.out[neuron], expected, rtol=1e-4, atol=1e-6)


SIZES = [(32, 64, 2, 1024), (64, 128, 2, 512), (64, 256, 2, 1024), (128, 1024, 2, 2048)]


def accuracy(seed, dim, facts, degree, width):
    first, second = jr.split(jr.key(seed))
    pairs = Associations.draw(facts, dim, key=first)
    return hermite_memory(pairs, width, degree, key=second).score(pairs).accuracy


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
        ({"width": 4, "degree": 0}, "degree must be from 1 to 100"),
        ({"width": 4, "degree": -2}, "degree must be from 1 to 100"),
        ({"width": 4, "degree": 10**8}, "from 1 to 100, got 100000000"),
        ({"width": 4, "degree": 3, "activation": HermitePolynomial((1.0, 1.0))}, "of degree 3"),
        ({"width": 4, "degree": 1, "activation": HermitePolynomial((1.0, 0.0, 1.0))}, "degree 1"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    pairs = Associations.draw(4, 3, key=jr.key(0))
    with pytest.raises(FactmemError, match=message):
        hermite_memory(pairs, **options, key=jr.key(1))
