"""Decoding by argmax, its margins and losses, against plain loops and other libraries."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from factmem.memories import decoding
from factmem.memories.decoding import (
    cross_entropy_of_one,
    decodable,
    decode,
    loss_of_each,
    margins_in_full,
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
    """γ_xy and γ_xy / (‖F‖ ‖u_f − u_y‖) as the definitions have them, in float64."""
    outputs, values = np.asarray(outputs, float), np.asarray(values, float)
    plain = np.full((len(outputs), len(values)), np.inf)
    relative = plain.copy()
    for x, right in enumerate(np.asarray(target)):
        for y in range(len(values)):
            if y != right:
                difference = values[right] - values[y]
                plain[x, y] = difference @ outputs[x]
                lengths = np.linalg.norm(outputs[x]) * np.linalg.norm(difference)
                relative[x, y] = plain[x, y] / lengths
    return plain, relative


@given(seed=st.integers(0, 10**6))
def test_margins_are_those_of_the_definition(seed):
    data = problem(seed)
    plain, relative = margins_by_loops(*data)
    found = smallest_margins(*data)
    np.testing.assert_allclose(margins_in_full(*data), plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.margin, plain.min(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.relative, relative.min(axis=1), rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 10**6))
def test_a_key_is_recalled_when_its_answer_is_decoded(seed):
    outputs, values, target = problem(seed)
    answers = np.argmax(np.asarray(outputs, float) @ np.asarray(values, float).T, axis=1)
    np.testing.assert_array_equal(decode(outputs, values), answers)
    np.testing.assert_array_equal(recalled(outputs, values, target), answers == target)


@pytest.mark.parametrize("entries", [1, 12, 10**6])
def test_blocks_change_nothing(monkeypatch, entries):
    data = problem(0)
    whole = smallest_margins(*data), decode(*data[:2]), loss_of_each(cross_entropy_of_one, *data)
    monkeypatch.setattr(decoding, "_BLOCK_ENTRIES", entries)
    parts = smallest_margins(*data), decode(*data[:2]), loss_of_each(cross_entropy_of_one, *data)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), whole, parts)


def test_a_tie_is_no_recall():
    outputs, values = jnp.ones((1, 2)), jnp.ones((2, 2))
    target = jnp.array([0])
    assert not recalled(outputs, values, target)[0]
    margins = smallest_margins(outputs, values, target)
    assert (margins.margin[0], margins.relative[0]) == (0, 0)


def test_what_is_not_a_number_is_no_recall():
    outputs, values = jnp.full((1, 2), jnp.nan), jnp.eye(2)
    assert not recalled(outputs, values, jnp.array([0]))[0]
    assert jnp.isnan(smallest_margins(outputs, values, jnp.array([0])).margin[0])


def test_a_single_answer_has_no_competitor():
    outputs, values, target = jnp.ones((3, 2)), jnp.ones((1, 2)), jnp.zeros(3, int)
    assert recalled(outputs, values, target).all()
    assert jnp.isinf(smallest_margins(outputs, values, target).margin).all()
    np.testing.assert_array_equal(loss_of_each(cross_entropy_of_one, outputs, values, target), 0)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 1.0, 100.0]))
def test_cross_entropy_and_its_gradient_are_those_of_log_softmax(seed, scale):
    outputs, values, target = problem(seed)
    outputs = scale * outputs

    def ours(outputs):
        return jnp.sum(loss_of_each(cross_entropy_of_one, outputs, values, target))

    def theirs(outputs):
        logits = jnp.matmul(outputs, values.T, precision="highest")
        return jnp.sum(optax.softmax_cross_entropy_with_integer_labels(logits, target))

    loss, slope = jax.value_and_grad(ours)(outputs)
    expected, expected_slope = jax.value_and_grad(theirs)(outputs)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-4, atol=1e-5)


def test_cross_entropy_does_not_overflow():
    outputs, values = 1e30 * jnp.eye(2), jnp.eye(2)
    losses = loss_of_each(cross_entropy_of_one, outputs, values, jnp.array([0, 0]))
    np.testing.assert_allclose(losses, [0, 1e30])


def test_relative_margins_have_no_scale():
    outputs, values, target = problem(0)
    expected = smallest_margins(outputs, values, target).relative
    for size in (1e-30, 1e30):
        found = smallest_margins(size * outputs, values / size, target)
        np.testing.assert_allclose(found.relative, expected, rtol=1e-4)
        np.testing.assert_allclose(
            smallest_margins(size * outputs, values, target).relative, expected, rtol=1e-4
        )


def test_margins_are_found_in_bounded_memory():
    facts = outputs = 2**11
    shapes = (
        jax.ShapeDtypeStruct((facts, 64), jnp.float32),
        jax.ShapeDtypeStruct((outputs, 64), jnp.float32),
        jax.ShapeDtypeStruct((facts,), jnp.int32),
    )
    used = jax.jit(smallest_margins).lower(*shapes).compile().memory_analysis()
    assert used.temp_size_in_bytes < facts * outputs * 64 * 4 / 16


def test_the_scores_are_never_in_memory_all_at_once():
    facts = outputs = 2**13
    shapes = (
        jax.ShapeDtypeStruct((facts, 4), jnp.float32),
        jax.ShapeDtypeStruct((outputs, 4), jnp.float32),
        jax.ShapeDtypeStruct((facts,), jnp.int32),
    )

    def loss(outputs, values, target):
        return jnp.sum(loss_of_each(cross_entropy_of_one, outputs, values, target))

    used = jax.jit(jax.value_and_grad(loss)).lower(*shapes).compile().memory_analysis()
    assert used.temp_size_in_bytes < facts * outputs * 4 / 8


# ---- what can be decoded at all ------------------------------------------------------------------


def drawn(seed, outputs, dim):
    return np.random.default_rng(seed).normal(size=(outputs, dim))


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([(4, 2), (12, 2), (9, 3), (30, 3)]))
def test_what_can_be_decoded_are_the_corners_of_the_convex_hull(seed, size):
    values = drawn(seed, *size)
    corners = np.zeros(len(values), bool)
    corners[ConvexHull(values).vertices] = True
    np.testing.assert_array_equal(decodable(values), corners)


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_no_direction_decodes_to_what_cannot_be_decoded(seed):
    values = drawn(seed, 25, 3)
    directions = np.random.default_rng(seed + 1).normal(size=(20_000, 3))
    met = np.bincount(np.argmax(directions @ values.T, axis=1), minlength=len(values)) > 0
    assert not (met & ~decodable(values)).any()
    assert met.sum() >= 4, "the directions say something"


def test_orthonormal_answers_can_all_be_decoded():
    assert decodable(np.eye(7)).all()
    assert decodable(np.vstack([np.eye(3), -np.eye(3)])).all()


def test_what_lies_among_others_is_never_decoded():
    corners = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]])
    found = decodable(np.vstack([corners.mean(axis=0, keepdims=True), corners]))
    assert found.tolist() == [False, True, True, True, True]


def test_what_ties_with_another_is_not_decoded():
    corners = np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    twice = decodable(np.vstack([corners, corners[:1]]))
    assert twice.tolist() == [False, True, True, False]
    on_an_edge = (corners[0] + corners[1])[None] / 2
    assert decodable(np.vstack([corners, on_an_edge])).tolist() == [True, True, True, False]
    assert not decodable(np.ones((2, 3))).any()


def test_a_single_answer_is_always_decoded():
    assert decodable(np.zeros((1, 3))).tolist() == [True]


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1e3]))
def test_neither_scale_nor_place_nor_order_decide_what_can_be_decoded(seed, scale):
    values = drawn(seed, 15, 3)
    expected = decodable(values)
    np.testing.assert_array_equal(decodable(scale * values), expected)
    np.testing.assert_array_equal(decodable(values + 3.0), expected)
    np.testing.assert_array_equal(decodable(values[::-1]), expected[::-1])


def test_in_few_dimensions_many_answers_cannot_be_decoded():
    """Of 100 Gaussian vectors in d = 8 about one in twelve, and in d = 32 none."""
    lost = [np.mean(~decodable(drawn(seed, 100, 8))) for seed in range(6)]
    assert 1 / 18 < np.mean(lost) < 1 / 9
    assert decodable(drawn(0, 100, 32)).all()
