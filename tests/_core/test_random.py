"""Random numbers drawn in powers of two equal those of jax."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core import random

SHAPES = [(1,), (7,), (8,), (9,), (3, 5), (4, 4), (2, 3, 7), (300, 11), (0, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_matches_jax_random(shape):
    key = jr.key(5)
    np.testing.assert_array_equal(random.normal(key, shape), jr.normal(key, shape))
    truncated = random.truncated_normal(key, -2.0, 1.5, shape)
    np.testing.assert_array_equal(truncated, jr.truncated_normal(key, -2.0, 1.5, shape))
    assert truncated.shape == shape
    assert not np.any((truncated < -2.0) | (truncated > 1.5))


def test_large_arrays_are_not_padded(monkeypatch):
    monkeypatch.setattr(random, "_MAX_PADDED_SIZE", 10)
    key = jr.key(1)
    np.testing.assert_array_equal(random.normal(key, (3, 5)), jr.normal(key, (3, 5)))


def test_dtypes(float64):
    key = jr.key(2)
    assert random.normal(key, (3, 2)).dtype == jnp.float64
    assert random.normal(key, (3, 2), jnp.float32).dtype == jnp.float32
    np.testing.assert_array_equal(random.normal(key, (3, 2)), jr.normal(key, (3, 2)))


def test_similar_sizes_share_a_compiled_program(monkeypatch):
    shapes, normal = [], jr.normal

    def recorded(key, *, shape, dtype):
        shapes.append(shape)
        return normal(key, shape, dtype)

    monkeypatch.setattr(jr, "normal", recorded)
    for shape in [(60,), (5, 7), (3, 3, 4), (8, 8), (5, 13)]:
        assert random.normal(jr.key(0), shape).shape == shape
    assert shapes == [(64,), (64,), (64,), (64,), (128,)]


def test_works_under_jit():
    numbers = jax.jit(lambda key: random.normal(key, (3, 5)))(jr.key(4))
    np.testing.assert_allclose(numbers, jr.normal(jr.key(4), (3, 5)), rtol=1e-6)
