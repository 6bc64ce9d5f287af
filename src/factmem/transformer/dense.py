"""Reference implementation of attention, position by position, as in the paper's equations.

It is slow. All other code uses the form over token counts in `attention.py`, which computes the
same function; tests compare the two.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from factmem.transformer.model import Transformer

__all__ = ["attend_by_position", "dense_logits"]


def attend_by_position(
    scores: Float[Array, " length"], values: Float[Array, "length head_dim"]
) -> Float[Array, " head_dim"]:
    """Compute Σ_t softmax(scores)_t · values_t for one prompt and one head.

    Values are taken relative to the value of the strongest position. In exact arithmetic this
    changes nothing; in floating point it keeps the gradient accurate when one position gets nearly
    all attention.
    """
    strongest = values[jnp.argmax(scores)]
    return strongest + jax.nn.softmax(scores) @ (values - strongest[None, :])


def dense_logits(model: Transformer, tokens: Int[Array, " length"]) -> Float[Array, " outputs"]:
    """Compute the logits of one prompt from its token sequence.

    attn(X; K, Q, V) = V Xᵀ softmax(X Kᵀ Q x_T)
    F_MHSA(X) = Σ_h O_hᵀ attn(X; K_h, Q_h, V_h)
    """
    x = model.embeddings.tokens[tokens]
    weights = model.weights

    def head_output(query: Array, key: Array, value: Array, output: Array) -> Array:
        scores = (x @ key.T) @ (query @ x[-1]) * model.score_scale
        return output.T @ attend_by_position(scores, x @ value.T)

    with jax.default_matmul_precision("highest"):
        outputs = jax.vmap(head_output)(weights.query, weights.key, weights.value, weights.output)
        attention = jnp.sum(outputs, axis=0)
        return model.embeddings.outputs @ model.add_mlp(attention)
