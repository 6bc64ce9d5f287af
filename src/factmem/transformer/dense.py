"""Attention as the equations have it, position by position: the form to read and to check against.

Nothing here is fast. The form over token counts in `attention.py` has the same meaning and is used
everywhere else.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from factmem.transformer.model import Transformer

__all__ = ["attend_by_position", "dense_logits"]


def attend_by_position(
    scores: Float[Array, " length"], values: Float[Array, "length head_dim"]
) -> Float[Array, " head_dim"]:
    """Σ_t softmax(scores)_t · values_t for one prompt and one head.

    Values are measured from that of the strongest position. This changes nothing in exact
    arithmetic, and keeps the digits of the gradient when one position takes nearly everything.
    """
    strongest = values[jnp.argmax(scores)]
    return strongest + jax.nn.softmax(scores) @ (values - strongest[None, :])


def dense_logits(model: Transformer, tokens: Int[Array, " length"]) -> Float[Array, " outputs"]:
    """The logits of one prompt, from its tokens in their places.

    attn(X; K, Q, V) = V Xᵀ softmax(X Kᵀ Q x_T)
    F_MHSA(X) = Σ_h O_hᵀ attn(X; K_h, Q_h, V_h)
    """
    x = model.embeddings.tokens[tokens]
    weights = model.weights

    def head(query: Array, key: Array, value: Array, output: Array) -> Array:
        scores = (x @ key.T) @ (query @ x[-1]) * model.score_scale
        return output.T @ attend_by_position(scores, x @ value.T)

    with jax.default_matmul_precision("highest"):
        heads = jax.vmap(head)(weights.query, weights.key, weights.value, weights.output)
        attended = jnp.sum(heads, axis=0)
        return model.embeddings.outputs @ model.with_mlp(attended)
