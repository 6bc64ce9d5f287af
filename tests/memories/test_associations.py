"""Keys, values and targets."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.memories import Associations, draw_target
from factmem.memories.embeddings import orthonormal


def test_random_associations_have_unit_vectors_and_the_identity():
    pairs = Associations.draw(jr.key(0), facts=10, dim=4)
    assert (pairs.facts, pairs.outputs, pairs.dim) == (10, 10, 4)
    for vectors in (pairs.keys, pairs.values):
        np.testing.assert_allclose(jnp.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(pairs.target, np.arange(10))
    assert not np.allclose(pairs.keys, pairs.values)
    assert pairs.injective
    assert pairs.bits == pytest.approx(10 * np.log2(10))


def test_seeds_differ_and_repeat():
    first, again = (Associations.draw(jr.key(1), 5, 3) for _ in range(2))
    other = Associations.draw(jr.key(2), 5, 3)
    np.testing.assert_array_equal(first.keys, again.keys)
    assert not np.allclose(first.keys, other.keys)


def test_answers_are_the_values_of_the_target():
    pairs = Associations.draw(jr.key(0), 6, 3, outputs=9, target="permutation")
    for x in range(6):
        np.testing.assert_array_equal(pairs.answers[x], pairs.values[int(pairs.target[x])])


def test_fewer_values_than_keys_are_shared_in_blocks():
    pairs = Associations.draw(jr.key(0), facts=10, dim=4, outputs=4)
    np.testing.assert_array_equal(pairs.target, [x * 4 // 10 for x in range(10)])
    assert not pairs.injective


@given(facts=st.integers(1, 40), outputs=st.integers(1, 40), seed=st.integers(0, 99))
def test_targets_name_values_and_injective_ones_name_each_once(facts, outputs, seed):
    blocks = np.asarray(draw_target(jr.key(seed), facts, outputs, "blocks"))
    counts = np.bincount(blocks, minlength=outputs)
    assert blocks.min() >= 0
    assert len(counts) == outputs
    if facts >= outputs:
        assert counts.min() >= facts // outputs
        assert counts.max() <= -(-facts // outputs)
    for name in ("identity", "permutation"):
        if outputs < facts:
            with pytest.raises(FactmemError, match="distinct answers"):
                draw_target(jr.key(seed), facts, outputs, name)
        else:
            target = np.asarray(draw_target(jr.key(seed), facts, outputs, name))
            assert np.unique(target).size == facts
            assert target.max() < outputs


def test_a_permutation_is_random():
    targets = [tuple(draw_target(jr.key(s), 5, 5, "permutation").tolist()) for s in range(20)]
    assert len(set(targets)) > 10


def test_embeddings_may_be_chosen():
    pairs = Associations.draw(jr.key(0), 4, 4, embedding=orthonormal)
    np.testing.assert_allclose(pairs.keys @ pairs.keys.T, np.eye(4), atol=1e-6)


def test_numpy_arrays_are_taken():
    pairs = Associations(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), np.array([1, 0]))
    assert pairs.injective


@pytest.mark.parametrize(
    ("shapes", "target", "message"),
    [
        (((2, 3), (2, 4)), [0, 1], "3 dimensions"),
        (((2, 3), (2, 3)), [0, 2], "from 0 to 1"),
        (((2, 3), (2, 3)), [0, -1], "from 0 to 1"),
        (((2, 3), (2, 3)), [0], "2 entries"),
        (((2, 3), (2, 3)), [0.0, 1.0], "whole number"),
        (((0, 3), (2, 3)), [], "at least one row"),
        (((2, 3), (0, 3)), [0, 0], "at least one row"),
    ],
)
def test_what_does_not_fit_is_refused(shapes, target, message):
    keys, values = (jnp.ones(shape) for shape in shapes)
    with pytest.raises((FactmemError, TypeError)) as refused:
        Associations(keys, values, jnp.array(target) if target else jnp.zeros(0, int))
    # jaxtyping, which only tests turn on, may be quicker than our own check.
    assert message in str(refused.value) or refused.type is not FactmemError


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_vectors_are_finite(wrong):
    keys, values = jnp.eye(2), jnp.eye(2)
    for vectors in ((keys.at[0, 1].set(wrong), values), (keys, values.at[0, 1].set(wrong))):
        with pytest.raises(FactmemError, match="finite"):
            Associations(*vectors, jnp.arange(2))


def test_whole_numbers_become_floats():
    pairs = Associations(np.eye(2, dtype=int), np.eye(2, dtype=int), np.arange(2))
    assert pairs.keys.dtype == pairs.values.dtype == jnp.float32


@pytest.mark.parametrize("sizes", [(0, 4, None), (4, 0, None), (4, 4, 0), (-1, 4, None)])
def test_sizes_below_one_are_refused(sizes):
    facts, dim, outputs = sizes
    with pytest.raises(FactmemError, match="at least one"):
        Associations.draw(jr.key(0), facts, dim, outputs)


def test_an_unknown_target_is_refused():
    # jaxtyping, which only tests turn on, may be quicker than our own check.
    with pytest.raises((FactmemError, TypeError), match=r"identity.*permutation.*blocks"):
        draw_target(jr.key(0), 3, 3, "diagonal")
