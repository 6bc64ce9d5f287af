"""Weights of few bits and of much noise."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.memories import (
    Associations,
    LinearMemory,
    bits_needed,
    fewest_bits,
    hebbian,
    low_rank,
    maximal,
    noise_tolerated,
    noisy,
    rounded,
    rounded_to_multiples,
)

PAIRS = Associations.draw(jr.key(0), 60, 96)


@given(seed=st.integers(0, 10**6), bits=st.integers(1, 24))
def test_every_weight_moves_to_the_nearest_of_two_to_the_b_levels(seed, bits):
    weights = np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32)
    found = np.asarray(rounded(LinearMemory(jnp.asarray(weights)), bits).matrix, float)
    largest = np.abs(weights).max().astype(float)
    step = 2 * largest / (2**bits - 1)
    places = (found + largest) / step
    assert np.abs(found - weights).max() <= step / 2 * (1 + 1e-6) + 2e-7 * largest
    assert np.abs(places - np.round(places)).max() < 1e-6 * 2**bits + 1e-6
    assert np.abs(found).max() == pytest.approx(largest)


def test_one_bit_keeps_the_signs():
    memory = rounded(LinearMemory(jnp.array([[0.2, -0.1], [3.0, -2.0]])), 1)
    np.testing.assert_allclose(memory.matrix, [[3, -3], [3, -3]])


def test_each_tensor_has_its_own_scale():
    memory = low_rank(jr.key(1), PAIRS, 8)
    memory = type(memory)(100 * memory.left, memory.right)
    small = rounded(memory, 4)
    assert len(np.unique(np.asarray(small.left).round(3))) > 4
    assert jnp.abs(small.right).max() == pytest.approx(float(jnp.abs(memory.right).max()))
    assert jnp.abs(small.left - memory.left).max() <= jnp.abs(memory.left).max() / 15 * 1.001


def test_weights_of_zero_stay_zero():
    memory = rounded(LinearMemory(jnp.zeros((2, 2))), 3)
    assert (memory.matrix == 0).all()


@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 0.999))
def test_the_corollary_a_margin_of_a_half_survives_steps_below_one_over_2d(seed, share):
    """Unit vectors in d dimensions, γ_min = 1/2, ε < 1/(2d): every margin stays positive."""
    dim = 4
    pairs = Associations.draw(jr.key(seed % 50), 4, dim)
    best = np.linalg.lstsq(np.asarray(pairs.keys, float), np.asarray(pairs.values, float))[0].T
    random = np.random.default_rng(seed).normal(size=(dim, dim))
    matrix = jnp.asarray(best + 0.01 * random, jnp.float32)
    margin = LinearMemory(matrix).score(pairs).min_margin
    if margin <= 0:
        return  # ill-conditioned keys: no memory with a margin to begin with
    memory = LinearMemory(matrix * (0.5 / margin))
    assert memory.score(pairs).min_margin == pytest.approx(0.5, rel=1e-2)
    step = share * memory.score(pairs).min_margin / dim
    rough = rounded_to_multiples(memory, step)
    multiples = np.asarray(rough.matrix, float) / step
    np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-3)
    assert np.abs(rough.matrix - memory.matrix).max() <= step / 2 * (1 + 1e-4)
    assert rough.score(pairs).min_margin > 0


@pytest.mark.parametrize(("step", "safe"), [(0.998 / 8, True), (1 / 8, False)])
def test_the_corollary_is_tight(step, safe):
    """W = 1 1ᵀ/(4d), the worst case: an error of ε/2 in every entry, aligned with the margin."""
    dim = 4
    ones = jnp.ones(dim) / 2  # a unit vector
    pairs = Associations(ones[None, :], jnp.stack([ones, -ones]), jnp.array([0]))
    # Entries below ε/2 round to zero, and ε = 1/(2d) is where these begin to.
    weight = 1 / (4 * dim) * (1 - 1e-5)
    memory = LinearMemory(jnp.full((dim, dim), weight))
    assert memory.score(pairs).min_margin == pytest.approx(0.5, rel=1e-3)
    assert (rounded_to_multiples(memory, step).score(pairs).min_margin > 0) is safe


def test_noise_has_the_relative_size_that_was_asked_for():
    memory = LinearMemory(3.0 * jnp.ones((200, 200)))
    factor = np.asarray(noisy(memory, jr.key(0), 0.1).matrix) / 3 - 1
    assert factor.std() == pytest.approx(0.1, rel=0.02)
    assert factor.mean() == pytest.approx(0, abs=0.002)
    assert (noisy(memory, jr.key(0), 0.0).matrix == memory.matrix).all()


def test_noise_is_independent_between_tensors_and_draws():
    memory = low_rank(jr.key(1), PAIRS, 8)
    memory = jax.tree.map(jnp.ones_like, memory)
    first, second = noisy(memory, jr.key(0), 0.1), noisy(memory, jr.key(1), 0.1)
    correlation = np.corrcoef(
        [np.ravel(m) for m in (first.left, first.right, second.left, second.right)]
    )
    assert np.abs(correlation - np.eye(4)).max() < 0.15


def test_the_fewest_bits_are_those_below_which_recall_fails():
    pairs = Associations.draw(jr.key(0), 60, 16)
    memory = maximal(pairs).memory
    bits = bits_needed(memory, pairs)
    assert bits is not None
    assert bits > 2
    assert all(rounded(memory, b).score(pairs).accuracy == 1 for b in range(bits, 25))
    assert rounded(memory, bits - 1).score(pairs).accuracy < 1


def test_the_corollary_is_loose_and_few_bits_do():
    """paper.md: three bits at d = 96, N = 60, where the corollary asks for log2(8 N d + 1) = 16."""
    bits = bits_needed(hebbian(PAIRS), PAIRS)
    assert bits is not None
    assert bits <= 3


def test_the_most_noise_is_where_recall_begins_to_fail():
    memory, key = hebbian(PAIRS), jr.key(7)
    sigma = noise_tolerated(memory, PAIRS, key)
    assert sigma is not None

    def survives(level):
        draws = jr.split(key, 5)
        return all(noisy(memory, one, level).score(PAIRS).accuracy == 1 for one in draws)

    assert survives(sigma)
    assert not survives(1.05 * sigma)
    assert 0.05 < sigma < 4


def test_what_is_not_recalled_to_begin_with_has_no_precision():
    pairs = Associations.draw(jr.key(0), 300, 8)
    memory = hebbian(pairs)
    assert bits_needed(memory, pairs) is None
    assert noise_tolerated(memory, pairs, jr.key(1)) is None


@pytest.mark.parametrize("bits", [0, -1, 25])
def test_impossible_bits_are_refused(bits):
    with pytest.raises(FactmemError, match="1 to 24 bits"):
        rounded(hebbian(PAIRS), bits)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_impossible_noise_is_refused(sigma):
    with pytest.raises(FactmemError, match="from 0"):
        noisy(hebbian(PAIRS), jr.key(0), sigma)


def test_an_impossible_step_is_refused():
    with pytest.raises(FactmemError, match="positive"):
        rounded_to_multiples(hebbian(PAIRS), 0.0)


def test_fewest_bits_hold_at_every_larger_number():
    shares = {1: 1.0, 2: 0.9, 3: 0.5, 4: 0.95}
    at = lambda bits: shares.get(bits, 1.0)  # noqa: E731
    assert [fewest_bits(at, share) for share in (1.0, 0.95, 0.92, 0.5)] == [5, 4, 4, 1]
    assert fewest_bits(lambda bits: 0.98, 0.99) is None


@pytest.mark.parametrize("criterion", [0.0, -0.1, 1.1, float("nan")])
def test_a_criterion_is_a_share(criterion):
    with pytest.raises(FactmemError, match="share"):
        bits_needed(hebbian(PAIRS), PAIRS, criterion)
