"""Confused facts are found, and the penalty separates them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem.transformer.compiler import confusion as confusion_module
from factmem.transformer.compiler.confusion import (
    ConfusedPairs,
    confused_pairs,
    separation_penalty,
)
from factmem.transformer.compiler.known_inputs import FitData, initial_weights
from factmem.transformer.shape import Shape

SUBJECTS, RELATIONS, DIM, HEADS = 6, 4, 12, 3
KNOWN = np.array([(s, SUBJECTS + r, 10) for s in range(SUBJECTS) for r in range(RELATIONS)])


def problem(scores, seed=0):
    """Return data of all facts, and weights whose heads have these scores of the 11 tokens."""
    rng = np.random.default_rng(seed)
    tokens = np.linalg.qr(rng.normal(size=(DIM, 11)))[0].T
    data = FitData(
        tokens=tokens.astype(np.float32),
        known=KNOWN.astype(np.int32),
        outputs=rng.normal(size=(24, DIM)).astype(np.float32),
        target=np.arange(24, dtype=np.int32),
        noise=np.zeros((1, DIM), np.float32),
        noise_gap=np.asarray(1.0, np.float32),
    )
    shape = Shape(DIM, len(scores), 1, 5)
    weights = initial_weights(data, scores @ tokens, shape, bias=True, rng=rng)
    return data, jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), weights)


def pairs_of(pairs):
    known = np.asarray(pairs.known)[np.asarray(pairs.present)]
    fact_of = {tuple(row): fact for fact, row in enumerate(KNOWN.tolist())}
    return {frozenset(fact_of[tuple(row)] for row in pair) for pair in known.tolist()}


@pytest.mark.parametrize("block_entries", [2**21, 60])
def test_finds_the_facts_for_which_all_heads_read_the_same(monkeypatch, block_entries):
    """Subjects 0 and 1 score below the relations, in every head; the others above."""
    monkeypatch.setattr(confusion_module, "_BLOCK_ENTRIES", block_entries)
    scores = np.zeros((HEADS, 11))
    scores[:, 2:SUBJECTS], scores[:, SUBJECTS:10] = 30.0, 15.0
    scores[0, SUBJECTS:10] = 45.0  # one head reads relations, the others subjects
    data, weights = problem(scores)
    found = pairs_of(confused_pairs(weights, data, rng=np.random.default_rng(0)))
    assert found == {frozenset({r, RELATIONS + r}) for r in range(RELATIONS)}
    # With equal answers they do no harm.
    equal = data._replace(target=np.tile(np.arange(4, dtype=np.int32), 6))
    assert pairs_of(confused_pairs(weights, equal, rng=np.random.default_rng(0))) == set()


def test_a_small_share_of_attention_is_enough_to_tell_facts_apart():
    scores = np.zeros((HEADS, 11))
    scores[:, :2], scores[:, 2:SUBJECTS], scores[:, SUBJECTS:10] = 12.0, 30.0, 15.0
    scores[0, SUBJECTS:10] = 45.0
    data, weights = problem(scores)
    assert pairs_of(confused_pairs(weights, data, rng=np.random.default_rng(0))) == set()


def test_at_most_32_pairs_are_returned():
    data, weights = problem(np.zeros((HEADS, 11)))
    one_subject = data._replace(known=np.repeat(data.known[:1], 24, axis=0))
    pairs = confused_pairs(weights, one_subject, rng=np.random.default_rng(0))
    assert pairs.known.shape == (32, 2, 3)
    assert np.asarray(pairs.present).all()


@given(st.integers(0, 10**6))
def test_penalty_is_the_squared_violation_of_the_gap(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(HEADS, 11)) * 2
    data, weights = problem(scores, seed % 5)
    facts = rng.integers(24, size=(5, 2))
    facts = facts[facts[:, 0] != facts[:, 1]]
    expected = 0.0
    for left, right in KNOWN[facts].tolist():
        both = set(left) & set(right)
        own = set(left) ^ set(right)
        gaps = [max(head[list(own)]) - max(head[list(both)]) for head in scores]
        expected += max(0.0, 2.0 - max(gaps)) ** 2
    pairs = ConfusedPairs.of(KNOWN[facts])
    penalty = jax.jit(separation_penalty)(weights.key, data.tokens, pairs)
    assert float(penalty) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_padding_has_neither_a_penalty_nor_a_gradient():
    data, weights = problem(np.zeros((HEADS, 11)))
    value, gradient = jax.value_and_grad(separation_penalty)(
        weights.key, jnp.asarray(data.tokens), ConfusedPairs.none()
    )
    assert float(value) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros((HEADS, DIM)))


def test_gradient_steps_separate_a_pair():
    scores = np.zeros((HEADS, 11))
    scores[:, SUBJECTS:10] = 15.0
    data, weights = problem(scores)
    pairs = ConfusedPairs.of(KNOWN[[[0, RELATIONS]]])
    gradient = jax.jit(jax.grad(separation_penalty))
    key, tokens = weights.key, jnp.asarray(data.tokens)
    assert float(separation_penalty(key, tokens, pairs)) == pytest.approx(17.0**2, rel=1e-4)
    for _ in range(20):
        key = key - 0.2 * gradient(key, tokens, pairs)
    assert float(separation_penalty(key, tokens, pairs)) < 0.1
