"""Associations and their targets."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.memories import Associations, draw_target
from factmem.memories.embeddings import orthonormal


def test_default_draw_has_unit_vectors_and_the_identity_target():
    pairs = Associations.draw(facts=10, dim=4, key=jr.key(0))
    assert (pairs.facts, pairs.outputs, pairs.dim) == (10, 10, 4)
    for vectors in (pairs.keys, pairs.values):
        np.testing.assert_allclose(jnp.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(pairs.target, np.arange(10))
    assert not np.allclose(pairs.keys, pairs.values)
    assert pairs.injective
    assert pairs.bits == pytest.approx(10 * np.log2(10))


def test_draws_depend_on_the_key_only():
    first, again = (Associations.draw(5, 3, key=jr.key(1)) for _ in range(2))
    other = Associations.draw(5, 3, key=jr.key(2))
    np.testing.assert_array_equal(first.keys, again.keys)
    assert not np.allclose(first.keys, other.keys)


def test_answers_are_values_of_the_target():
    pairs = Associations.draw(6, 3, outputs=9, target="permutation", key=jr.key(0))
    for x in range(6):
        np.testing.assert_array_equal(pairs.answers[x], pairs.values[int(pairs.target[x])])


def test_fewer_values_than_keys_use_blocks():
    pairs = Associations.draw(facts=10, dim=4, outputs=4, key=jr.key(0))
    np.testing.assert_array_equal(pairs.target, [x * 4 // 10 for x in range(10)])
    assert not pairs.injective


@given(
    facts=st.sampled_from([1, 5, 7, 16, 40]),
    outputs=st.sampled_from([1, 3, 7, 16, 41]),
    seed=st.integers(0, 99),
)
def test_targets_are_in_range_and_injective_where_possible(facts, outputs, seed):
    blocks = np.asarray(draw_target(facts, outputs, "blocks", key=jr.key(seed)))
    counts = np.bincount(blocks, minlength=outputs)
    assert blocks.min() >= 0
    assert len(counts) == outputs
    if facts >= outputs:
        assert counts.min() >= facts // outputs
        assert counts.max() <= -(-facts // outputs)
    for name in ("identity", "permutation"):
        if outputs < facts:
            with pytest.raises(FactmemError, match="distinct answers"):
                draw_target(facts, outputs, name, key=jr.key(seed))
        else:
            target = np.asarray(draw_target(facts, outputs, name, key=jr.key(seed)))
            assert np.unique(target).size == facts
            assert target.max() < outputs


def test_permutations_are_random():
    targets = [tuple(draw_target(5, 5, "permutation", key=jr.key(s)).tolist()) for s in range(20)]
    assert len(set(targets)) > 10


def test_embedding_option():
    pairs = Associations.draw(4, 4, embedding=orthonormal, key=jr.key(0))
    np.testing.assert_allclose(pairs.keys @ pairs.keys.T, np.eye(4), atol=1e-6)


def test_accepts_numpy_arrays():
    pairs = Associations(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), np.array([1, 0]))
    assert pairs.injective


@pytest.mark.parametrize(
    ("shapes", "target", "message"),
    [
        (((2, 3), (2, 4)), [0, 1], "3 dimensions"),
        (((2, 3), (2, 3)), [0, 2], "targets must be from 0 to 1"),
        (((2, 3), (2, 3)), [0, -1], "targets must be from 0 to 1"),
        (((2, 3), (2, 3)), [0], "shape (2,)"),
        (((2, 3), (2, 3)), [0.0, 1.0], "array of integers"),
        (((0, 3), (2, 3)), [], "non-empty matrices"),
        (((2, 3), (0, 3)), [0, 0], "non-empty matrices"),
    ],
)
def test_invalid_arrays_are_rejected(shapes, target, message):
    keys, values = (jnp.ones(shape) for shape in shapes)
    with pytest.raises((FactmemError, TypeError)) as caught:
        Associations(keys, values, jnp.array(target) if target else jnp.zeros(0, int))
    # jaxtyping, which is active only in tests, may raise before our check.
    assert message in str(caught.value) or caught.type is not FactmemError


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_nan_and_infinity_are_rejected(wrong):
    keys, values = jnp.eye(2), jnp.eye(2)
    for vectors in ((keys.at[0, 1].set(wrong), values), (keys, values.at[0, 1].set(wrong))):
        with pytest.raises(FactmemError, match="finite"):
            Associations(*vectors, jnp.arange(2))


def test_integers_become_floats():
    pairs = Associations(np.eye(2, dtype=int), np.eye(2, dtype=int), np.arange(2))
    assert pairs.keys.dtype == pairs.values.dtype == jnp.float32


@pytest.mark.parametrize("sizes", [(0, 4, None), (4, 0, None), (4, 4, 0), (-1, 4, None)])
def test_sizes_below_one_are_rejected(sizes):
    facts, dim, outputs = sizes
    with pytest.raises(FactmemError, match="must be at least 1"):
        Associations.draw(facts, dim, outputs, key=jr.key(0))


def test_unknown_targets_are_rejected():
    # jaxtyping, which is active only in tests, may raise before our check.
    with pytest.raises((FactmemError, TypeError), match=r"identity.*permutation.*blocks"):
        draw_target(3, 3, "diagonal", key=jr.key(0))
