"""The softmax head against the paper's formula, and descent on w against descent on W_KQ."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from factmem.dynamics import SoftmaxHead
from factmem.facts import count_tokens

TOKENS, ANSWERS, DIM = 7, 5, 6
PROMPT = jnp.asarray([3, 1, 3, 0, TOKENS - 1], jnp.int32)


def head(seed=0):
    start = SoftmaxHead.start(jr.key(seed), TOKENS, ANSWERS, DIM, 1e-2)
    keys = jr.split(jr.key(seed + 1))
    return SoftmaxHead(
        jr.normal(keys[0], (DIM, DIM)), jr.normal(keys[1], (DIM,)), start.tokens, start.answers
    )


def dense_logits(w_ov, w_kq, model):
    """φ(a)ᵀ W_OV Xᵀ softmax(X W_KQ x_T)."""
    x = model.tokens[PROMPT]
    return model.answers @ (w_ov @ (x.T @ jax.nn.softmax(x @ (w_kq @ x[-1]))))


def reduced_logits(model):
    return model.logits(count_tokens(PROMPT[None, :], TOKENS))[0]


def matrix(model):
    """A W_KQ with W_KQ φ(EOS) = w, and something on other directions."""
    eos = model.tokens[-1]
    other = jr.normal(jr.key(9), (DIM, DIM))
    return jnp.outer(model.w - other @ eos, eos) + other


def test_the_head_is_the_formula():
    model = head()
    assert np.allclose(
        reduced_logits(model), dense_logits(model.W_OV, matrix(model), model), atol=1e-5
    )


def test_a_step_on_the_matrix_moves_w_as_a_step_on_w():
    model = head(1)

    def dense_loss(w_ov, w_kq):
        return -jax.nn.log_softmax(dense_logits(w_ov, w_kq, model))[2]

    def loss(model):
        return -jax.nn.log_softmax(reduced_logits(model))[2]

    of_ov, of_kq = jax.grad(dense_loss, (0, 1))(model.W_OV, matrix(model))
    gradient = jax.grad(loss)(model)
    assert np.allclose(gradient.W_OV, of_ov, atol=1e-5)
    assert np.allclose(gradient.w, of_kq @ model.tokens[-1], atol=1e-5)
    assert (gradient.tokens == 0).all()
    assert (gradient.answers == 0).all()


def test_the_start_is_equal_weights_and_unit_embeddings():
    model = SoftmaxHead.start(jr.key(0), TOKENS, ANSWERS, DIM, 1e-5)
    assert (np.float32(1e-5) == model.W_OV).all()
    assert (model.w == np.float32(1e-5)).all()
    assert np.allclose(jnp.linalg.norm(model.tokens, axis=1), 1, atol=1e-6)
    assert np.allclose(jnp.linalg.norm(model.answers, axis=1), 1, atol=1e-6)
