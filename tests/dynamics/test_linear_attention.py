"""The reduced form and the matrices give the same logits and gradients."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.dynamics import AttentionMatrices, LinearAttention
from factmem.dynamics.linear_attention import check_dim
from factmem.facts import count_tokens
from factmem.memories.embeddings import orthonormal

TOKENS, ANSWERS, DIM, LENGTH = 7, 5, 9, 6


def random_matrices(seed):
    """Return matrices that are not of minimum norm: they also act outside the embeddings."""
    keys = jr.split(jr.key(seed), 4)
    return AttentionMatrices(
        jr.normal(keys[0], (DIM, DIM)),
        jr.normal(keys[1], (DIM, DIM)),
        orthonormal(TOKENS, DIM, key=keys[2]),
        orthonormal(ANSWERS, DIM, key=keys[3]),
    )


def draw_prompt(seed):
    tokens = np.random.default_rng(seed).integers(TOKENS - 1, size=LENGTH - 1)
    return jnp.asarray([*tokens, TOKENS - 1], jnp.int32)


@jax.jit
def dense_logits(matrices, prompt):
    return matrices.logits(matrices.tokens[prompt])


@jax.jit
def reduced_logits(model, prompt):
    return model.logits(count_tokens(prompt[None, :], TOKENS))[0]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_reduced_form_has_the_same_logits(seed):
    matrices, prompt = random_matrices(seed), draw_prompt(seed)
    reduced = reduced_logits(jax.jit(AttentionMatrices.reduce)(matrices), prompt)
    assert np.allclose(dense_logits(matrices, prompt), reduced, rtol=1e-4, atol=1e-4)


def test_dense_form_matches_equation_15():
    matrices, prompt = random_matrices(3), draw_prompt(3)
    x = np.asarray(matrices.tokens[prompt], np.float64)
    keys = np.asarray(matrices.W_KQ, np.float64) @ x[-1]
    attended = sum((x[t] @ keys) * (np.asarray(matrices.W_OV) @ x[t]) for t in range(LENGTH))
    expected = np.asarray(matrices.answers) @ attended
    assert np.allclose(dense_logits(matrices, prompt), expected, atol=1e-4)


def test_from_reduced_inverts_reduce():
    model = LinearAttention.random(TOKENS, ANSWERS, 1.0, 0)
    reduced = AttentionMatrices.from_reduced(model, DIM, key=jr.key(1)).reduce()
    assert np.allclose(reduced.ov, model.ov, atol=1e-5)
    assert np.allclose(reduced.kq, model.kq, atol=1e-5)


def test_reduced_form_has_the_same_gradients():
    matrices, prompt = random_matrices(5), draw_prompt(5)

    def dense_loss(w_ov, w_kq):
        model = AttentionMatrices(w_ov, w_kq, matrices.tokens, matrices.answers)
        return -jax.nn.log_softmax(dense_logits(model, prompt))[2]

    def reduced_loss(model):
        return -jax.nn.log_softmax(reduced_logits(model, prompt))[2]

    gradients = jax.jit(jax.grad(dense_loss, (0, 1)))(matrices.W_OV, matrices.W_KQ)
    gradient = AttentionMatrices(*gradients, matrices.tokens, matrices.answers).reduce()
    expected = jax.jit(jax.grad(reduced_loss))(matrices.reduce())
    assert np.allclose(gradient.ov, expected.ov, atol=1e-4)
    assert np.allclose(gradient.kq, expected.kq, atol=1e-4)


def test_initial_weights():
    equal = LinearAttention.equal(TOKENS, ANSWERS, 1e-3)
    assert (equal.ov == 1e-3).all()
    assert (equal.kq == 1e-3).all()
    balanced = LinearAttention.balanced(TOKENS, ANSWERS, 1e-3)
    assert np.allclose(balanced.invariant, 1e-6, rtol=1e-12)
    random = LinearAttention.random(200, 200, 1e-3, 4)
    assert abs(np.std(random.ov) / 1e-3 - 1) < 0.02
    assert not np.allclose(random.kq, random.ov[:, 0])


def test_rejects_too_small_dimensions():
    model = LinearAttention.equal(TOKENS, ANSWERS, 1.0)
    with pytest.raises(FactmemError, match=r"^dim must be at least 7 .*, got 6$"):
        AttentionMatrices.from_reduced(model, 6, key=jr.key(0))
    with pytest.raises(FactmemError, match=r"^dim must be at least 8 .* and 8 answers, got 7$"):
        check_dim(7, 3, 8)
    check_dim(8, 3, 8)
