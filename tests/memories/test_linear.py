"""Theorem 1: exact statistics of margins, one gradient step, and what limits linear memories."""

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
    exact_matches,
    hebbian,
    least_squares,
    low_rank,
    maximal,
)
from factmem.memories.embeddings import orthonormal

D, N, DRAWS = 32, 60, 20_000


def margins_of_one_pair(outputs, make):
    """γ_01 for many independent draws of everything."""

    def margin(key):
        first, second = jr.split(key)
        pairs = Associations.draw(first, N, D, outputs)
        difference = pairs.values[0] - pairs.values[outputs - 1]
        return difference @ make(second, pairs)(pairs.keys[0])

    keys = jr.split(jr.key(0), DRAWS)
    return np.asarray(jax.jit(lambda k: jax.lax.map(margin, k, batch_size=500))(keys), float)


def assert_moments(samples, mean, variance):
    assert samples.mean() == pytest.approx(mean, abs=5 * sqrt(variance / DRAWS))
    # Heavy tails: the standard error of a variance comes from the fourth moment.
    error = sqrt(((samples - samples.mean()) ** 4).mean() / DRAWS)
    assert samples.var() == pytest.approx(variance, abs=5 * error)
    assert error < 0.03 * variance


def test_the_margins_of_the_hebbian_memory_have_the_exact_mean_and_variance():
    samples = margins_of_one_pair(N, lambda key, pairs: hebbian(pairs))
    assert_moments(samples, 1, 1 / D + (1 + 1 / D) / D + (N - 2) * 2 / D**2)


def test_a_competitor_that_is_nobodys_answer_adds_less():
    samples = margins_of_one_pair(N + 1, lambda key, pairs: hebbian(pairs))
    # N − 1 other keys now all pull at random; none of them at the competitor itself.
    assert_moments(samples, 1, 1 / D + (N - 1) * 2 / D**2)


def test_the_margins_at_low_rank_have_the_exact_mean_and_variance():
    rank = 8
    samples = margins_of_one_pair(N, lambda key, pairs: low_rank(key, pairs, rank))
    k0, k2 = 1 + 2 / rank, 1 / D + (1 + 1 / D) / rank
    variance = (1 + 1 / D) * k0 - 1 + (1 + 1 / D) * k2 + (N - 2) * (2 / D) * k2
    assert_moments(samples, 1, variance)


def test_one_gradient_step_gives_the_hebbian_memory():
    pairs = Associations.draw(jr.key(0), 10, 6, target="permutation")
    zero = LinearMemory(jnp.zeros((6, 6)))
    step = jax.grad(correlation_loss)(zero, pairs)
    np.testing.assert_allclose(-step.matrix, hebbian(pairs).matrix, atol=1e-6)


def test_one_gradient_step_on_the_left_factor_gives_the_low_rank_memory():
    pairs = Associations.draw(jr.key(0), 10, 6, target="permutation")
    built = low_rank(jr.key(1), pairs, rank=4)
    start = LowRankMemory(jnp.zeros((6, 4)), built.right)
    step = jax.grad(correlation_loss)(start, pairs)
    np.testing.assert_allclose(-step.left / 4, built.left, atol=1e-6)
    np.testing.assert_allclose(step.right, 0)


def test_the_matrices_are_sums_of_outer_products():
    pairs = Associations.draw(jr.key(3), 5, 4, target="permutation")
    keys, answers = np.asarray(pairs.keys, float), np.asarray(pairs.answers, float)
    total = sum(np.outer(u, e) for u, e in zip(answers, keys, strict=True))
    np.testing.assert_allclose(hebbian(pairs).matrix, total, atol=1e-6)
    built = low_rank(jr.key(1), pairs, rank=2)
    right = np.asarray(built.right, float)
    projected = total @ sum(np.outer(v, v) for v in right.T) / 2
    np.testing.assert_allclose(built.matrix, projected, atol=1e-5)
    np.testing.assert_allclose(built(pairs.keys[0]), projected @ keys[0], atol=1e-5)
    assert np.linalg.matrix_rank(built.matrix, tol=1e-4) == 2


@pytest.mark.parametrize("dim", [2, 17, 64])
def test_orthonormal_keys_store_exactly_d(dim):
    keys = orthonormal(jr.key(0), dim, dim)
    pairs = Associations.draw(jr.key(1), dim, dim, target="permutation")
    pairs = Associations(keys, pairs.values, pairs.target)
    assert hebbian(pairs).score(pairs).accuracy == 1
    assert exact_matches(hebbian(pairs), pairs) == 1
    with pytest.raises(FactmemError, match="cannot be orthonormal"):
        orthonormal(jr.key(0), dim + 1, dim)


def test_a_key_used_twice_cannot_have_two_answers():
    keys = orthonormal(jr.key(0), 8, 8)
    values = Associations.draw(jr.key(1), 9, 8).values
    pairs = Associations(jnp.concatenate([keys, keys[:1]]), values, jnp.arange(9))
    best = maximal(pairs)
    assert best.proved_margin <= 0
    assert best.memory.score(pairs).accuracy < 1


def test_exact_matching_stores_d_where_argmax_stores_far_more():
    dim = 64
    few, many = Associations.draw(jr.key(0), dim, dim), Associations.draw(jr.key(0), 7 * dim, dim)
    assert exact_matches(least_squares(few), few) == 1
    # No matrix matches more than d keys in general position exactly: the nearest misses them all.
    assert exact_matches(least_squares(many), many, tolerance=0.1) == 0
    assert maximal(many).memory.score(many).accuracy == 1


def test_argmax_capacity_grows_like_d_squared_over_logarithms():
    """N ln N = 0.9 d² is stored at two dimensions a factor of two apart; exact matching doubles."""
    for dim, facts in ((16, 60), (32, 180)):
        pairs = Associations.draw(jr.key(1), facts, dim)
        assert facts * np.log(facts) / dim**2 == pytest.approx(0.93, abs=0.03)
        assert maximal(pairs).memory.score(pairs).accuracy == 1


@pytest.mark.parametrize(("facts", "expected"), [(64, 0.81), (256, 0.67), (1024, 0.60)])
def test_two_answers_break_the_linear_memory(facts, expected):
    def accuracy(seed):
        pairs = Associations.draw(jr.key(seed), facts, 64, outputs=2)
        return hebbian(pairs).score(pairs).accuracy

    assert np.mean([accuracy(seed) for seed in range(8)]) == pytest.approx(expected, abs=0.03)


def test_as_many_distinct_answers_do_not():
    pairs = Associations.draw(jr.key(0), 64, 64)
    assert hebbian(pairs).score(pairs).accuracy == 1


@pytest.mark.parametrize("rank", [0, -1, 7])
def test_a_rank_that_no_matrix_has_is_refused(rank):
    pairs = Associations.draw(jr.key(0), 4, 6)
    with pytest.raises(FactmemError, match="from 1 to 6"):
        low_rank(jr.key(1), pairs, rank)
