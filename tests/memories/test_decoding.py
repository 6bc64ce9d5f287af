"""Decoding, margins and losses compared with loops and other libraries."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem.memories import decoding
from factmem.memories.decoding import (
    all_margins,
    cross_entropy_from_gaps,
    decode,
    per_key_losses,
    recalled,
    smallest_margins,
)

FACTS, OUTPUTS, DIM = 7, 5, 3


def problem(seed, facts=FACTS, outputs=OUTPUTS, dim=DIM):
    first, second, third = jr.split(jr.key(seed), 3)
    return (
        jr.normal(first, (facts, dim)),
        jr.normal(second, (outputs, dim)),
        jr.randint(third, (facts,), 0, outputs),
    )


def margins_by_loops(outputs, values, target):
    """Compute γ_xy and γ_xy / (‖F‖ ‖u_f − u_y‖) by their definitions, in float64."""
    outputs, values = np.asarray(outputs, float), np.asarray(values, float)
    margins = np.full((len(outputs), len(values)), np.inf)
    relative = margins.copy()
    for x, right in enumerate(np.asarray(target)):
        for y in range(len(values)):
            if y != right:
                difference = values[right] - values[y]
                margins[x, y] = difference @ outputs[x]
                lengths = np.linalg.norm(outputs[x]) * np.linalg.norm(difference)
                relative[x, y] = margins[x, y] / lengths
    return margins, relative


@given(seed=st.integers(0, 10**6))
def test_margins_match_their_definition(seed):
    data = problem(seed)
    margins, relative = margins_by_loops(*data)
    result = smallest_margins(*data)
    np.testing.assert_allclose(all_margins(*data), margins, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.margin, margins.min(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.relative, relative.min(axis=1), rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 10**6))
def test_recalled_if_the_answer_is_decoded(seed):
    outputs, values, target = problem(seed)
    answers = np.argmax(np.asarray(outputs, float) @ np.asarray(values, float).T, axis=1)
    np.testing.assert_array_equal(decode(outputs, values), answers)
    np.testing.assert_array_equal(recalled(outputs, values, target), answers == target)


@pytest.mark.parametrize("entries", [1, 12, 10**6])
def test_block_size_does_not_matter(monkeypatch, entries):
    data = problem(0)
    expected = (
        smallest_margins(*data),
        decode(*data[:2]),
        per_key_losses(cross_entropy_from_gaps, *data),
    )
    monkeypatch.setattr(decoding, "_BLOCK_ENTRIES", entries)
    result = (
        smallest_margins(*data),
        decode(*data[:2]),
        per_key_losses(cross_entropy_from_gaps, *data),
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), expected, result)


def test_a_tie_is_not_recalled():
    outputs, values = jnp.ones((1, 2)), jnp.ones((2, 2))
    target = jnp.array([0])
    assert not recalled(outputs, values, target)[0]
    margins = smallest_margins(outputs, values, target)
    assert (margins.margin[0], margins.relative[0]) == (0, 0)


def test_nan_is_not_recalled():
    outputs, values = jnp.full((1, 2), jnp.nan), jnp.eye(2)
    assert not recalled(outputs, values, jnp.array([0]))[0]
    assert jnp.isnan(smallest_margins(outputs, values, jnp.array([0])).margin[0])


def test_a_single_value_has_an_infinite_margin():
    outputs, values, target = jnp.ones((3, 2)), jnp.ones((1, 2)), jnp.zeros(3, int)
    assert recalled(outputs, values, target).all()
    assert jnp.isinf(smallest_margins(outputs, values, target).margin).all()
    np.testing.assert_array_equal(
        per_key_losses(cross_entropy_from_gaps, outputs, values, target), 0
    )


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 1.0, 100.0]))
def test_cross_entropy_and_its_gradient_match_optax(seed, scale):
    outputs, values, target = problem(seed)
    outputs = scale * outputs

    def loss(outputs):
        return jnp.sum(per_key_losses(cross_entropy_from_gaps, outputs, values, target))

    def optax_loss(outputs):
        logits = jnp.matmul(outputs, values.T, precision="highest")
        return jnp.sum(optax.softmax_cross_entropy_with_integer_labels(logits, target))

    value, gradient = jax.value_and_grad(loss)(outputs)
    expected, expected_gradient = jax.value_and_grad(optax_loss)(outputs)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def test_cross_entropy_does_not_overflow():
    outputs, values = 1e30 * jnp.eye(2), jnp.eye(2)
    losses = per_key_losses(cross_entropy_from_gaps, outputs, values, jnp.array([0, 0]))
    np.testing.assert_allclose(losses, [0, 1e30])


def test_relative_margins_are_scale_free():
    outputs, values, target = problem(0)
    expected = smallest_margins(outputs, values, target).relative
    for size in (1e-30, 1e30):
        result = smallest_margins(size * outputs, values / size, target)
        np.testing.assert_allclose(result.relative, expected, rtol=1e-4)
        np.testing.assert_allclose(
            smallest_margins(size * outputs, values, target).relative, expected, rtol=1e-4
        )


def test_margins_use_bounded_memory():
    facts = outputs = 2**11
    shapes = (
        jax.ShapeDtypeStruct((facts, 64), jnp.float32),
        jax.ShapeDtypeStruct((outputs, 64), jnp.float32),
        jax.ShapeDtypeStruct((facts,), jnp.int32),
    )
    memory = jax.jit(smallest_margins).lower(*shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes < facts * outputs * 64 * 4 / 16


def test_losses_use_bounded_memory():
    facts = outputs = 2**13
    shapes = (
        jax.ShapeDtypeStruct((facts, 4), jnp.float32),
        jax.ShapeDtypeStruct((outputs, 4), jnp.float32),
        jax.ShapeDtypeStruct((facts,), jnp.int32),
    )

    def loss(outputs, values, target):
        return jnp.sum(per_key_losses(cross_entropy_from_gaps, outputs, values, target))

    memory = jax.jit(jax.value_and_grad(loss)).lower(*shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes < facts * outputs * 4 / 8
