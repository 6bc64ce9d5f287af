"""One softmax attention head on random embeddings.

    F(X) = W_OV Xᵀ softmax(X W_KQ x_T)

The query is always EOS, so only w = W_KQ φ(EOS) matters. Since φ(EOS) has norm 1, gradient descent
on W_KQ changes w as gradient descent on w does.

Reference: Figure 5, right.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, Num

from factmem.memories.embeddings import sphere
from factmem.transformer.attention import TRAINING_TOLERANCE, attend

__all__ = ["SoftmaxHead"]


class SoftmaxHead(eqx.Module):
    """A softmax head with its fixed embeddings."""

    W_OV: Float[Array, "dim dim"]
    w: Float[Array, " dim"]
    """W_KQ φ(EOS)."""
    tokens: Float[Array, "tokens dim"]
    answers: Float[Array, "answers dim"]

    @classmethod
    def equal(
        cls, tokens: int, answers: int, dim: int, scale: float, *, key: Key[Array, ""]
    ) -> "SoftmaxHead":
        """Return a head with all weights α and embeddings drawn from the unit sphere."""
        token_key, answer_key = jr.split(key)
        return cls(
            jnp.full((dim, dim), scale),
            jnp.full(dim, scale),
            sphere(tokens, dim, key=token_key),
            sphere(answers, dim, key=answer_key),
        )

    def logits(self, counts: Num[Array, "batch tokens"]) -> Float[Array, "batch answers"]:
        """Compute the logits of prompts, given as token counts."""
        tokens, answers = (jax.lax.stop_gradient(table) for table in (self.tokens, self.answers))
        with jax.default_matmul_precision("highest"):
            scores = tokens @ self.w
            values = (tokens @ self.W_OV.T) @ answers.T
        attended = attend(counts, scores[:, None], values[:, None, :], tolerance=TRAINING_TOLERANCE)
        return attended[:, 0]
