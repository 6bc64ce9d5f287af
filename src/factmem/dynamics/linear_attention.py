"""Linear attention with orthonormal embeddings: two small tables say all that the matrices do.

    F_lin(X) = W_OV Xᵀ X W_KQ x_T                                    (equation 15 of the paper)

The query is always EOS. Where ⟨φ(z), φ(z')⟩ = 1{z = z'}, only these numbers matter,

    W_OV(a, z) = φ(a)ᵀ W_OV φ(z),        W_KQ(z) = φ(z)ᵀ W_KQ φ(EOS),

and a prompt in which z stands C(z) times has the logits Σ_z C(z) W_OV(a, z) W_KQ(z). Gradient flow
on the numbers is gradient flow on the matrices, for the change between them is an isometry.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, Num

from factmem._core.errors import FactmemError
from factmem.memories.embeddings import orthonormal

__all__ = ["LinearAttention", "Matrices", "check_dim"]


class LinearAttention(eqx.Module):
    """The reduced form. Tokens are those of a prompt, or classes of tokens with equal weights."""

    ov: Float[Array | np.ndarray, "tokens answers"]
    """W_OV(a, z), a row for each token."""
    kq: Float[Array | np.ndarray, " tokens"]
    """W_KQ(z)."""

    # ---- where training starts -----------------------------------------------------------------

    @classmethod
    def equal(cls, tokens: int, answers: int, scale: float) -> "LinearAttention":
        """All weights α: how the authors' experiments start."""
        return cls(np.full((tokens, answers), scale), np.full(tokens, scale))

    @classmethod
    def balanced(cls, tokens: int, answers: int, scale: float) -> "LinearAttention":
        """W_OV(a, z) = α and W_KQ(z) = α√(|A| + 1): how the theorems start."""
        start = cls.equal(tokens, answers, scale)
        return cls(start.ov, start.kq * np.sqrt(answers + 1))

    @classmethod
    def random(cls, tokens: int, answers: int, scale: float, seed: int) -> "LinearAttention":
        """All weights independent, normal, of standard deviation α."""
        drawn = np.random.default_rng(seed).normal(scale=scale, size=(tokens, answers + 1))
        return cls(drawn[:, 1:], drawn[:, 0])

    # ---- what it says --------------------------------------------------------------------------

    @property
    def products(self) -> Float[Array, "tokens answers"]:
        """W_OV(a, z) W_KQ(z): what one z adds to the logits. The loss is convex in these."""
        return jnp.asarray(self.ov) * jnp.asarray(self.kq)[:, None]

    def logits(self, counts: Num[Array, "batch tokens"]) -> Float[Array, "batch answers"]:
        """The logits of prompts that are given as counts of their tokens."""
        return jnp.matmul(
            counts.astype(self.ov.dtype), self.products, precision=jax.lax.Precision.HIGHEST
        )

    @property
    def invariant(self) -> Float[Array | np.ndarray, " tokens"]:
        """W_KQ(z)² − Σ_a W_OV(a, z)², which gradient flow does not change."""
        return self.kq**2 - (self.ov**2).sum(axis=1)


class Matrices(eqx.Module):
    """The form that the paper writes, with the embeddings: to read and to check against."""

    W_OV: Float[Array, "dim dim"]
    W_KQ: Float[Array, "dim dim"]
    tokens: Float[Array, "tokens dim"]
    """φ(z) of everything that can stand in a prompt, EOS last."""
    answers: Float[Array, "answers dim"]
    """φ(a)."""

    @classmethod
    def of(cls, model: LinearAttention, key: Key[Array, ""], dim: int) -> "Matrices":
        """The smallest matrices that mean the same on random orthonormal embeddings.

        Tokens and answers may share directions, as in the authors' code: no logit sees it.

        Raises:
            FactmemError: fewer dimensions than tokens or than answers.
        """
        count, answers = model.ov.shape
        check_dim(dim, count, answers)
        token_key, answer_key = jr.split(key)
        tokens = orthonormal(token_key, count, dim)
        outputs = orthonormal(answer_key, answers, dim)
        with jax.default_matmul_precision("highest"):
            W_OV = outputs.T @ jnp.asarray(model.ov, tokens.dtype).T @ tokens
            W_KQ = jnp.outer(tokens.T @ jnp.asarray(model.kq, tokens.dtype), tokens[-1])
        return cls(W_OV, W_KQ, tokens, outputs)

    def reduced(self) -> LinearAttention:
        """W_OV(a, z) and W_KQ(z)."""
        with jax.default_matmul_precision("highest"):
            ov = self.tokens @ self.W_OV.T @ self.answers.T
            return LinearAttention(ov, self.tokens @ self.W_KQ @ self.tokens[-1])

    def logits(self, prompt: Float[Array, "length dim"]) -> Float[Array, " answers"]:
        """φ(a)ᵀ W_OV Xᵀ X W_KQ x_T for the embeddings X of one prompt, in their places."""
        with jax.default_matmul_precision("highest"):
            attended = prompt.T @ (prompt @ (self.W_KQ @ prompt[-1]))
            return self.answers @ (self.W_OV @ attended)


def check_dim(dim: int, tokens: int, answers: int) -> None:
    """Raises FactmemError unless so many embeddings can be orthonormal."""
    for name, count in (("tokens of prompts", tokens), ("answers", answers)):
        if dim < count:
            raise FactmemError(
                f"{count} {name} cannot have orthonormal embeddings in {dim} dimensions: "
                f"at least {max(tokens, answers)} are needed"
            )
