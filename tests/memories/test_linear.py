"""Theorem 1: moments of margins, one gradient step, and limits of linear memories."""

from math import sqrt

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.memories import (
    Associations,
    LinearMemory,
    LowRankMemory,
    correlation_loss,
    exact_match_rate,
    hebbian,
    least_squares,
    low_rank,
    optimal_linear_memory,
)
from factmem.memories.embeddings import orthonormal

D, N, DRAWS = 32, 60, 20_000


def margins_of_one_pair(outputs, make):
    """Sample γ_01 for independent draws of all vectors."""

    def margin(key):
        first, second = jr.split(key)
        pairs = Associations.draw(N, D, outputs, key=first)
        difference = pairs.values[0] - pairs.values[outputs - 1]
        return difference @ make(second, pairs)(pairs.keys[0])

    keys = jr.split(jr.key(0), DRAWS)
    return np.asarray(jax.jit(lambda k: jax.lax.map(margin, k, batch_size=500))(keys), float)


def assert_moments(samples, mean, variance):
    assert samples.mean() == pytest.approx(mean, abs=5 * sqrt(variance / DRAWS))
    # Because of heavy tails, the standard error of the variance uses the fourth moment.
    error = sqrt(((samples - samples.mean()) ** 4).mean() / DRAWS)
    assert samples.var() == pytest.approx(variance, abs=5 * error)
    assert error < 0.03 * variance


def test_mean_and_variance_of_hebbian_margins():
    samples = margins_of_one_pair(N, lambda key, pairs: hebbian(pairs))
    assert_moments(samples, 1, 1 / D + (1 + 1 / D) / D + (N - 2) * 2 / D**2)


def test_variance_of_margins_to_an_unused_value():
    samples = margins_of_one_pair(N + 1, lambda key, pairs: hebbian(pairs))
    # All N − 1 other keys contribute independently; none of them has this value.
    assert_moments(samples, 1, 1 / D + (N - 1) * 2 / D**2)


def test_mean_and_variance_of_low_rank_margins():
    rank = 8
    samples = margins_of_one_pair(N, lambda key, pairs: low_rank(pairs, rank, key=key))
    k0, k2 = 1 + 2 / rank, 1 / D + (1 + 1 / D) / rank
    variance = (1 + 1 / D) * k0 - 1 + (1 + 1 / D) * k2 + (N - 2) * (2 / D) * k2
    assert_moments(samples, 1, variance)


def test_one_gradient_step_gives_the_hebbian_memory():
    pairs = Associations.draw(10, 6, target="permutation", key=jr.key(0))
    zero = LinearMemory(jnp.zeros((6, 6)))
    step = jax.grad(correlation_loss)(zero, pairs)
    np.testing.assert_allclose(-step.matrix, hebbian(pairs).matrix, atol=1e-6)


def test_one_gradient_step_on_the_left_factor_gives_the_low_rank_memory():
    pairs = Associations.draw(10, 6, target="permutation", key=jr.key(0))
    built = low_rank(pairs, rank=4, key=jr.key(1))
    start = LowRankMemory(jnp.zeros((6, 4)), built.right)
    step = jax.grad(correlation_loss)(start, pairs)
    np.testing.assert_allclose(-step.left / 4, built.left, atol=1e-6)
    np.testing.assert_allclose(step.right, 0)


def test_matrices_are_sums_of_outer_products():
    pairs = Associations.draw(5, 4, target="permutation", key=jr.key(3))
    keys, answers = np.asarray(pairs.keys, float), np.asarray(pairs.answers, float)
    total = sum(np.outer(u, e) for u, e in zip(answers, keys, strict=True))
    np.testing.assert_allclose(hebbian(pairs).matrix, total, atol=1e-6)
    built = low_rank(pairs, rank=2, key=jr.key(1))
    right = np.asarray(built.right, float)
    projected = total @ sum(np.outer(v, v) for v in right.T) / 2
    np.testing.assert_allclose(built.matrix, projected, atol=1e-5)
    np.testing.assert_allclose(built(pairs.keys[0]), projected @ keys[0], atol=1e-5)
    assert np.linalg.matrix_rank(built.matrix, tol=1e-4) == 2


@pytest.mark.parametrize("dim", [2, 17, 64])
def test_orthonormal_keys_store_exactly_d(dim):
    keys = orthonormal(dim, dim, key=jr.key(0))
    pairs = Associations.draw(dim, dim, target="permutation", key=jr.key(1))
    pairs = Associations(keys, pairs.values, pairs.target)
    assert hebbian(pairs).score(pairs).accuracy == 1
    assert exact_match_rate(hebbian(pairs), pairs) == 1
    with pytest.raises(FactmemError, match="cannot be orthonormal"):
        orthonormal(dim + 1, dim, key=jr.key(0))


def test_a_repeated_key_cannot_have_two_answers():
    keys = orthonormal(8, 8, key=jr.key(0))
    values = Associations.draw(9, 8, key=jr.key(1)).values
    pairs = Associations(jnp.concatenate([keys, keys[:1]]), values, jnp.arange(9))
    best = optimal_linear_memory(pairs)
    assert best.proved_margin <= 0
    assert best.model.score(pairs).accuracy < 1


def test_argmax_stores_more_than_exact_matching():
    dim = 64
    few, many = (Associations.draw(facts, dim, key=jr.key(0)) for facts in (dim, 7 * dim))
    assert exact_match_rate(least_squares(few), few) == 1
    # No matrix matches more than d keys in general position; least squares misses all of them.
    assert exact_match_rate(least_squares(many), many, tolerance=0.1) == 0
    assert optimal_linear_memory(many).model.score(many).accuracy == 1


def test_argmax_capacity_grows_like_d_squared_over_logarithms():
    """N ln N = 0.93 d² is stored at d = 16 and d = 32; exact matching only doubles."""
    for dim, facts in ((16, 60), (32, 180)):
        pairs = Associations.draw(facts, dim, key=jr.key(1))
        assert facts * np.log(facts) / dim**2 == pytest.approx(0.93, abs=0.03)
        assert optimal_linear_memory(pairs).model.score(pairs).accuracy == 1


@pytest.mark.parametrize(("facts", "expected"), [(64, 0.81), (256, 0.67), (1024, 0.60)])
def test_two_values_break_the_hebbian_memory(facts, expected):
    def accuracy(seed):
        pairs = Associations.draw(facts, 64, outputs=2, key=jr.key(seed))
        return hebbian(pairs).score(pairs).accuracy

    assert np.mean([accuracy(seed) for seed in range(8)]) == pytest.approx(expected, abs=0.03)


def test_distinct_values_do_not_break_the_hebbian_memory():
    pairs = Associations.draw(64, 64, key=jr.key(0))
    assert hebbian(pairs).score(pairs).accuracy == 1


@pytest.mark.parametrize("rank", [0, -1, 7])
def test_invalid_ranks_are_rejected(rank):
    pairs = Associations.draw(4, 6, key=jr.key(0))
    with pytest.raises(FactmemError, match="rank must be from 1 to dim = 6"):
        low_rank(pairs, rank, key=jr.key(1))
