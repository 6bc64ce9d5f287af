"""The reduced form means what the matrices mean."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.dynamics import LinearAttention, Matrices
from factmem.dynamics.linear_attention import check_dim
from factmem.facts import count_tokens
from factmem.memories.embeddings import orthonormal

TOKENS, ANSWERS, DIM, LENGTH = 7, 5, 9, 6


def random_matrices(seed):
    """Matrices that are not of the smallest kind: they act outside the embeddings too."""
    keys = jr.split(jr.key(seed), 4)
    return Matrices(
        jr.normal(keys[0], (DIM, DIM)),
        jr.normal(keys[1], (DIM, DIM)),
        orthonormal(keys[2], TOKENS, DIM),
        orthonormal(keys[3], ANSWERS, DIM),
    )


def prompt_of(seed):
    drawn = np.random.default_rng(seed).integers(TOKENS - 1, size=LENGTH - 1)
    return jnp.asarray([*drawn, TOKENS - 1], jnp.int32)


def reduced_logits(model, prompt):
    return model.logits(count_tokens(prompt[None, :], TOKENS))[0]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_the_reduced_form_has_the_logits_of_random_matrices(seed):
    full = random_matrices(seed)
    prompt = prompt_of(seed)
    with jax.enable_x64(False):
        dense = full.logits(full.tokens[prompt])
        assert np.allclose(dense, reduced_logits(full.reduced(), prompt), rtol=1e-4, atol=1e-4)


def test_the_dense_form_is_equation_15_word_by_word():
    full = random_matrices(3)
    x = np.asarray(full.tokens[prompt_of(3)], np.float64)
    keys = np.asarray(full.W_KQ, np.float64) @ x[-1]
    attended = sum((x[t] @ keys) * (np.asarray(full.W_OV) @ x[t]) for t in range(LENGTH))
    assert np.allclose(full.logits(jnp.asarray(x, jnp.float32)), full.answers @ attended, atol=1e-4)


def test_matrices_of_a_reduced_form_are_reduced_to_it():
    model = LinearAttention.random(TOKENS, ANSWERS, 1.0, 0)
    again = Matrices.of(model, jr.key(1), DIM).reduced()
    assert np.allclose(again.ov, model.ov, atol=1e-5)
    assert np.allclose(again.kq, model.kq, atol=1e-5)


def test_gradients_of_the_matrices_are_those_of_the_reduced_form():
    full = random_matrices(5)
    prompt = prompt_of(5)

    def dense_loss(w_ov, w_kq):
        moved = Matrices(w_ov, w_kq, full.tokens, full.answers)
        return -jax.nn.log_softmax(moved.logits(full.tokens[prompt]))[2]

    def reduced_loss(model):
        return -jax.nn.log_softmax(reduced_logits(model, prompt))[2]

    moved = Matrices(
        *jax.grad(dense_loss, (0, 1))(full.W_OV, full.W_KQ), full.tokens, full.answers
    ).reduced()
    expected = jax.grad(reduced_loss)(full.reduced())
    assert np.allclose(moved.ov, expected.ov, atol=1e-4)
    assert np.allclose(moved.kq, expected.kq, atol=1e-4)


def test_starts_are_as_the_paper_has_them():
    equal = LinearAttention.equal(TOKENS, ANSWERS, 1e-3)
    assert (equal.ov == 1e-3).all()
    assert (equal.kq == 1e-3).all()
    balanced = LinearAttention.balanced(TOKENS, ANSWERS, 1e-3)
    assert np.allclose(balanced.invariant, 1e-6, rtol=1e-12)
    drawn = LinearAttention.random(200, 200, 1e-3, 4)
    assert abs(np.std(drawn.ov) / 1e-3 - 1) < 0.02
    assert not np.allclose(drawn.kq, drawn.ov[:, 0])


def test_a_vocabulary_too_large_for_orthonormal_embeddings_is_refused():
    model = LinearAttention.equal(TOKENS, ANSWERS, 1.0)
    with pytest.raises(FactmemError, match=r"7 tokens of prompts cannot have orthonormal .* in 6"):
        Matrices.of(model, jr.key(0), 6)
    with pytest.raises(FactmemError, match=r"8 answers cannot .* at least 8 are needed"):
        check_dim(7, 3, 8)
    check_dim(8, 3, 8)
