"""Rounding and noise of weights."""

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
    noise_tolerated,
    noisy,
    optimal_linear_memory,
    rounded,
    rounded_to_integers,
    rounded_to_multiples,
)

PAIRS = Associations.draw(60, 96, key=jr.key(0))


@given(seed=st.integers(0, 10**6), bits=st.integers(1, 24))
def test_rounds_to_the_nearest_level(seed, bits):
    weights = np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32)
    result = np.asarray(rounded(LinearMemory(jnp.asarray(weights)), bits).matrix, float)
    largest = np.abs(weights).max().astype(float)
    step = 2 * largest / (2**bits - 1)
    levels = (result + largest) / step
    assert np.abs(result - weights).max() <= step / 2 * (1 + 1e-6) + 2e-7 * largest
    assert np.abs(levels - np.round(levels)).max() < 1e-6 * 2**bits + 1e-6
    assert np.abs(result).max() == pytest.approx(largest)


@given(seed=st.integers(0, 10**6), bits=st.integers(2, 24))
def test_integers_have_one_scale_and_keep_zero(seed, bits):
    weights = np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32)
    weights[1, 2] = 0.0
    result = np.asarray(rounded_to_integers(LinearMemory(jnp.asarray(weights)), bits).matrix, float)
    largest = np.abs(weights).max().astype(float)
    step = largest / (2 ** (bits - 1) - 1)
    assert np.abs(result - weights).max() <= step / 2 * (1 + 1e-6) + 2e-7 * largest
    assert np.abs(result / step - np.round(result / step)).max() < 1e-6 * 2**bits + 1e-6
    assert np.abs(result).max() == pytest.approx(largest)
    assert result[1, 2] == 0.0


def test_integers_need_two_bits():
    with pytest.raises(FactmemError, match="bits must be from 2 to 24, got 1"):
        rounded_to_integers(LinearMemory(jnp.ones((2, 2))), 1)


def test_one_bit_keeps_the_signs():
    memory = rounded(LinearMemory(jnp.array([[0.2, -0.1], [3.0, -2.0]])), 1)
    np.testing.assert_allclose(memory.matrix, [[3, -3], [3, -3]])


def test_each_tensor_has_its_own_scale():
    memory = low_rank(PAIRS, 8, key=jr.key(1))
    memory = type(memory)(100 * memory.left, memory.right)
    small = rounded(memory, 4)
    assert len(np.unique(np.asarray(small.left).round(3))) > 4
    assert jnp.abs(small.right).max() == pytest.approx(float(jnp.abs(memory.right).max()))
    assert jnp.abs(small.left - memory.left).max() <= jnp.abs(memory.left).max() / 15 * 1.001


def test_zero_weights_stay_zero():
    memory = rounded(LinearMemory(jnp.zeros((2, 2))), 3)
    assert (memory.matrix == 0).all()


@given(seed=st.integers(0, 10**6), fraction=st.floats(0.01, 0.999))
def test_margins_stay_positive_below_the_step_of_the_corollary(seed, fraction):
    """Unit vectors in d dimensions, γ_min = 1/2, ε < 1/(2d)."""
    dim = 4
    pairs = Associations.draw(4, dim, key=jr.key(seed % 50))
    best = np.linalg.lstsq(np.asarray(pairs.keys, float), np.asarray(pairs.values, float))[0].T
    random = np.random.default_rng(seed).normal(size=(dim, dim))
    matrix = jnp.asarray(best + 0.01 * random, jnp.float32)
    margin = LinearMemory(matrix).score(pairs).min_margin
    if margin <= 0:
        return  # ill-conditioned keys
    memory = LinearMemory(matrix * (0.5 / margin))
    assert memory.score(pairs).min_margin == pytest.approx(0.5, rel=1e-2)
    step = fraction * memory.score(pairs).min_margin / dim
    result = rounded_to_multiples(memory, step)
    multiples = np.asarray(result.matrix, float) / step
    np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-3)
    assert np.abs(result.matrix - memory.matrix).max() <= step / 2 * (1 + 1e-4)
    assert result.score(pairs).min_margin > 0


@pytest.mark.parametrize(("step", "safe"), [(0.998 / 8, True), (1 / 8, False)])
def test_step_of_the_corollary_is_tight(step, safe):
    """W = 1 1ᵀ/(4d) is the worst case: all errors are ε/2 and aligned with the margin."""
    dim = 4
    ones = jnp.ones(dim) / 2  # a unit vector
    pairs = Associations(ones[None, :], jnp.stack([ones, -ones]), jnp.array([0]))
    # Entries below ε/2 round to zero, which happens from ε = 1/(2d).
    weight = 1 / (4 * dim) * (1 - 1e-5)
    memory = LinearMemory(jnp.full((dim, dim), weight))
    assert memory.score(pairs).min_margin == pytest.approx(0.5, rel=1e-3)
    assert (rounded_to_multiples(memory, step).score(pairs).min_margin > 0) is safe


def test_noise_has_the_given_relative_size():
    memory = LinearMemory(3.0 * jnp.ones((200, 200)))
    factor = np.asarray(noisy(memory, 0.1, key=jr.key(0)).matrix) / 3 - 1
    assert factor.std() == pytest.approx(0.1, rel=0.02)
    assert factor.mean() == pytest.approx(0, abs=0.002)
    assert (noisy(memory, 0.0, key=jr.key(0)).matrix == memory.matrix).all()


def test_noise_is_independent_between_tensors_and_keys():
    memory = low_rank(PAIRS, 8, key=jr.key(1))
    memory = jax.tree.map(jnp.ones_like, memory)
    first, second = noisy(memory, 0.1, key=jr.key(0)), noisy(memory, 0.1, key=jr.key(1))
    correlation = np.corrcoef(
        [np.ravel(m) for m in (first.left, first.right, second.left, second.right)]
    )
    assert np.abs(correlation - np.eye(4)).max() < 0.15


def test_recall_fails_below_the_bits_needed():
    pairs = Associations.draw(60, 16, key=jr.key(0))
    memory = optimal_linear_memory(pairs).model
    bits = bits_needed(memory, pairs)
    assert bits is not None
    assert bits > 2
    assert all(rounded(memory, b).score(pairs).accuracy == 1 for b in range(bits, 25))
    assert rounded(memory, bits - 1).score(pairs).accuracy < 1


def test_three_bits_suffice_where_the_corollary_requires_16():
    """At d = 96, N = 60 the corollary requires log2(8 N d + 1) = 16 bits."""
    bits = bits_needed(hebbian(PAIRS), PAIRS)
    assert bits is not None
    assert bits <= 3


def test_recall_fails_above_the_tolerated_noise():
    memory, key = hebbian(PAIRS), jr.key(7)
    sigma = noise_tolerated(memory, PAIRS, key=key)
    assert sigma is not None

    def survives(level):
        keys = jr.split(key, 5)
        return all(noisy(memory, level, key=k).score(PAIRS).accuracy == 1 for k in keys)

    assert survives(sigma)
    assert not survives(1.05 * sigma)
    assert 0.05 < sigma < 4


def test_none_if_the_memory_fails_without_noise():
    pairs = Associations.draw(300, 8, key=jr.key(0))
    memory = hebbian(pairs)
    assert bits_needed(memory, pairs) is None
    assert noise_tolerated(memory, pairs, key=jr.key(1)) is None


@pytest.mark.parametrize("bits", [0, -1, 25])
def test_invalid_bits_are_rejected(bits):
    with pytest.raises(FactmemError, match="bits must be from 1 to 24"):
        rounded(hebbian(PAIRS), bits)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_invalid_noise_is_rejected(sigma):
    with pytest.raises(FactmemError, match="sigma must be from 0"):
        noisy(hebbian(PAIRS), sigma, key=jr.key(0))


def test_rejects_a_step_of_zero():
    with pytest.raises(FactmemError, match="step must be positive"):
        rounded_to_multiples(hebbian(PAIRS), 0.0)


def test_fewest_bits_require_all_larger_numbers():
    accuracies = {1: 1.0, 2: 0.9, 3: 0.5, 4: 0.95}

    def accuracy_at(bits):
        return accuracies.get(bits, 1.0)

    criteria = (1.0, 0.95, 0.92, 0.5)
    assert [fewest_bits(accuracy_at, criterion) for criterion in criteria] == [5, 4, 4, 1]
    assert fewest_bits(lambda bits: 0.98, 0.99) is None


@pytest.mark.parametrize("criterion", [0.0, -0.1, 1.1, float("nan")])
def test_invalid_criteria_are_rejected(criterion):
    with pytest.raises(FactmemError, match="criterion must be above 0 and at most 1"):
        bits_needed(hebbian(PAIRS), PAIRS, criterion)
