"""Exact softmax attention for large vocabularies, token by token.

A head's value V_h φ(z) is linear in the embedding, so attention may mix embeddings before V_h is
applied:

    a_h = Σ_t p_h(t) V_h φ(z_t) = V_h m_h,        m_h = Σ_t p_h(t) φ(z_t)

The arrays are [batch, T, dim] and [batch, heads, T]: nothing depends on the vocabulary, and the
gradient of a frozen embedding table, a slow scatter, is never computed. Every prompt is shifted by
its own maximum score, so no score is too large or too small.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

__all__ = ["mix_by_attention"]

Tokens = Int[Array, "batch length"]
Scores = Float[Array, "batch length heads"]
Embedded = Float[Array, "batch length dim"]
Mixed = Float[Array, "batch heads dim"]


@jax.custom_vjp
def mix_by_attention(tokens: Tokens, scores: Scores, embedded: Embedded) -> Mixed:
    """Compute Σ_t softmax(scores)_t · φ(z_t) for every prompt and head.

    Args:
        tokens: token ids; only whether two are equal matters.
        scores: s_h(z_t), in nats; equal tokens have equal scores.
        embedded: φ(z_t).

    Returns:
        m_h for every prompt. Reverse-mode derivatives are exact for scores and embeddings, even
        where nearly all attention is on one token.
    """
    return _forward(tokens, scores, embedded)[0]


_Residuals = tuple[Tokens, Float[Array, "batch heads length"], Embedded]


def _forward(tokens: Tokens, scores: Scores, embedded: Embedded) -> tuple[Mixed, _Residuals]:
    # Heads before positions: both products are then batches of plain matrix products.
    attention = jax.nn.softmax(jnp.swapaxes(scores, 1, 2), axis=2)
    mixed = jnp.matmul(attention, embedded, precision="highest")
    return mixed, (tokens, attention, embedded)


def _backward(residuals: _Residuals, gradient: Mixed) -> tuple[None, Scores, Embedded]:
    tokens, attention, embedded = residuals
    parts = jnp.einsum("bhd,btd->bht", gradient, embedded, precision="highest")
    strongest = jnp.argmax(attention, axis=2, keepdims=True)
    parts = parts - jnp.take_along_axis(parts, strongest, axis=2)
    # Exactly 0 for the strongest token, wherever it stands, so that no large terms cancel.
    strongest_tokens = jnp.take_along_axis(tokens[:, None, :], strongest, axis=2)
    parts = jnp.where(tokens[:, None, :] == strongest_tokens, 0, parts)
    mean = jnp.sum(attention * parts, axis=2, keepdims=True)
    score_gradient = jnp.swapaxes(attention * (parts - mean), 1, 2)
    embedded_gradient = jnp.einsum("bht,bhd->btd", attention, gradient, precision="highest")
    return None, score_gradient, embedded_gradient


mix_by_attention.defvjp(_forward, _backward)
