"""One softmax head on random embeddings, as on the right of Figure 5.

    F(X) = W_OV Xᵀ softmax(X W_KQ x_T)

The query is always EOS, so W_KQ acts through w = W_KQ φ(EOS) alone, and as φ(EOS) has length 1,
gradient descent on W_KQ moves w as gradient descent on w does.
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
    """The head and the embeddings that it is given."""

    W_OV: Float[Array, "dim dim"]
    w: Float[Array, " dim"]
    """W_KQ φ(EOS)."""
    tokens: Float[Array, "tokens dim"]
    answers: Float[Array, "answers dim"]

    @classmethod
    def start(
        cls, key: Key[Array, ""], tokens: int, answers: int, dim: int, scale: float
    ) -> "SoftmaxHead":
        """All weights α, embeddings uniform on the unit sphere."""
        token_key, answer_key = jr.split(key)
        return cls(
            jnp.full((dim, dim), scale),
            jnp.full(dim, scale),
            sphere(token_key, tokens, dim),
            sphere(answer_key, answers, dim),
        )

    def logits(self, counts: Num[Array, "batch tokens"]) -> Float[Array, "batch answers"]:
        """The logits of prompts that are given as counts of their tokens."""
        tokens, answers = (jax.lax.stop_gradient(table) for table in (self.tokens, self.answers))
        with jax.default_matmul_precision("highest"):
            scores = tokens @ self.w
            values = (tokens @ self.W_OV.T) @ answers.T
        attended = attend(counts, scores[:, None], values[:, None, :], tolerance=TRAINING_TOLERANCE)
        return attended[:, 0]
