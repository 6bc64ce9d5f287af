"""The softmax head, against the paper's formula with the matrix W_KQ."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from factmem.dynamics import SoftmaxHead
from factmem.facts import count_tokens

TOKENS, ANSWERS, DIM = 7, 5, 6
PROMPT = jnp.asarray([3, 1, 3, 0, TOKENS - 1], jnp.int32)


def make_head(seed=0):
    start = SoftmaxHead.equal(TOKENS, ANSWERS, DIM, 1e-2, key=jr.key(seed))
    keys = jr.split(jr.key(seed + 1))
    return SoftmaxHead(
        jr.normal(keys[0], (DIM, DIM)), jr.normal(keys[1], (DIM,)), start.tokens, start.answers
    )


@jax.jit
def dense_logits(w_ov, w_kq, model):
    """φ(a)ᵀ W_OV Xᵀ softmax(X W_KQ x_T)."""
    x = model.tokens[PROMPT]
    return model.answers @ (w_ov @ (x.T @ jax.nn.softmax(x @ (w_kq @ x[-1]))))


@jax.jit
def reduced_logits(model):
    return model.logits(count_tokens(PROMPT[None, :], TOKENS))[0]


def random_w_kq(model):
    """Return a random W_KQ with W_KQ φ(EOS) = w."""
    eos = model.tokens[-1]
    other = jr.normal(jr.key(9), (DIM, DIM))
    return jnp.outer(model.w - other @ eos, eos) + other


def test_logits_match_the_formula():
    model = make_head()
    assert np.allclose(
        reduced_logits(model), dense_logits(model.W_OV, random_w_kq(model), model), atol=1e-5
    )


def test_gradient_of_w_matches_the_gradient_of_w_kq():
    model = make_head(1)

    def dense_loss(w_ov, w_kq):
        return -jax.nn.log_softmax(dense_logits(w_ov, w_kq, model))[2]

    def loss(model):
        return -jax.nn.log_softmax(reduced_logits(model))[2]

    ov_gradient, kq_gradient = jax.jit(jax.grad(dense_loss, (0, 1)))(model.W_OV, random_w_kq(model))
    gradient = jax.jit(jax.grad(loss))(model)
    assert np.allclose(gradient.W_OV, ov_gradient, atol=1e-5)
    assert np.allclose(gradient.w, kq_gradient @ model.tokens[-1], atol=1e-5)
    assert (gradient.tokens == 0).all()
    assert (gradient.answers == 0).all()


def test_initial_weights_are_equal_and_embeddings_have_norm_1():
    model = SoftmaxHead.equal(TOKENS, ANSWERS, DIM, 1e-5, key=jr.key(0))
    assert (np.float32(1e-5) == model.W_OV).all()
    assert (model.w == np.float32(1e-5)).all()
    assert np.allclose(jnp.linalg.norm(model.tokens, axis=1), 1, atol=1e-6)
    assert np.allclose(jnp.linalg.norm(model.answers, axis=1), 1, atol=1e-6)
