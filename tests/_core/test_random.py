"""Numbers that are drawn in powers of two are the same numbers."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core import random as draws

SHAPES = [(1,), (7,), (8,), (9,), (3, 5), (4, 4), (2, 3, 7), (300, 11), (0, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_those_of_jax(shape):
    key = jr.key(5)
    np.testing.assert_array_equal(draws.normal(key, shape), jr.normal(key, shape))
    cut = draws.truncated_normal(key, -2.0, 1.5, shape)
    np.testing.assert_array_equal(cut, jr.truncated_normal(key, -2.0, 1.5, shape))
    assert cut.shape == shape
    assert not np.any((cut < -2.0) | (cut > 1.5))


def test_large_arrays_are_drawn_as_they_are(monkeypatch):
    monkeypatch.setattr(draws, "_MOST", 10)
    key = jr.key(1)
    np.testing.assert_array_equal(draws.normal(key, (3, 5)), jr.normal(key, (3, 5)))


def test_types_are_kept(float64):
    key = jr.key(2)
    assert draws.normal(key, (3, 2)).dtype == jnp.float64
    assert draws.normal(key, (3, 2), jnp.float32).dtype == jnp.float32
    np.testing.assert_array_equal(draws.normal(key, (3, 2)), jr.normal(key, (3, 2)))


def test_shapes_of_one_power_share_a_program(monkeypatch):
    asked, drawn = [], jr.normal

    def noted(key, *, shape, dtype):
        asked.append(shape)
        return drawn(key, shape, dtype)

    monkeypatch.setattr(jr, "normal", noted)
    for shape in [(60,), (5, 7), (3, 3, 4), (8, 8), (5, 13)]:
        assert draws.normal(jr.key(0), shape).shape == shape
    assert asked == [(64,), (64,), (64,), (64,), (128,)]


def test_they_can_be_drawn_within_a_program():
    drawn = jax.jit(lambda key: draws.normal(key, (3, 5)))(jr.key(4))
    np.testing.assert_allclose(drawn, jr.normal(jr.key(4), (3, 5)), rtol=1e-6)
