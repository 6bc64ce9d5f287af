"""Linear attention with orthonormal embeddings, reduced to two small tables.

    F_lin(X) = W_OV Xᵀ X W_KQ x_T

The query is always EOS. If ⟨φ(z), φ(z')⟩ = 1{z = z'}, the logits depend on these numbers only:

    W_OV(a, z) = φ(a)ᵀ W_OV φ(z),        W_KQ(z) = φ(z)ᵀ W_KQ φ(EOS).

A prompt that contains token z C(z) times has the logits Σ_z C(z) W_OV(a, z) W_KQ(z). Gradient flow
on these numbers is gradient flow on the matrices, since the change of variables is an isometry.

Reference: equation 15 of the paper.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, Num

from factmem._core.errors import ArgumentError
from factmem.memories.embeddings import orthonormal

__all__ = ["AttentionMatrices", "LinearAttention", "check_dim"]


class LinearAttention(eqx.Module):
    """Linear attention in reduced form.

    The tokens are those of a prompt, or classes of tokens with equal weights.
    """

    ov: Float[Array | np.ndarray, "tokens answers"]
    """W_OV(a, z), one row for each token."""
    kq: Float[Array | np.ndarray, " tokens"]
    """W_KQ(z)."""

    # ---- initial weights -----------------------------------------------------------------------

    @classmethod
    def equal(cls, tokens: int, answers: int, scale: float) -> "LinearAttention":
        """Return the start of the authors' experiments: all weights α."""
        return cls(np.full((tokens, answers), scale), np.full(tokens, scale))

    @classmethod
    def balanced(cls, tokens: int, answers: int, scale: float) -> "LinearAttention":
        """Return the start of the theorems: W_OV(a, z) = α and W_KQ(z) = α√(|A| + 1)."""
        start = cls.equal(tokens, answers, scale)
        return cls(start.ov, start.kq * np.sqrt(answers + 1))

    @classmethod
    def random(cls, tokens: int, answers: int, scale: float, seed: int) -> "LinearAttention":
        """Draw independent normal weights with standard deviation α."""
        weights = np.random.default_rng(seed).normal(scale=scale, size=(tokens, answers + 1))
        return cls(weights[:, 1:], weights[:, 0])

    # ---- outputs and invariants ----------------------------------------------------------------

    @property
    def products(self) -> Float[Array, "tokens answers"]:
        """W_OV(a, z) W_KQ(z), which one token z adds to the logits. The loss is convex in these."""
        return jnp.asarray(self.ov) * jnp.asarray(self.kq)[:, None]

    def logits(self, counts: Num[Array, "batch tokens"]) -> Float[Array, "batch answers"]:
        """Compute the logits of prompts, given as token counts."""
        return jnp.matmul(
            counts.astype(self.ov.dtype), self.products, precision=jax.lax.Precision.HIGHEST
        )

    @property
    def invariant(self) -> Float[Array | np.ndarray, " tokens"]:
        """W_KQ(z)² − Σ_a W_OV(a, z)², which gradient flow conserves."""
        return self.kq**2 - (self.ov**2).sum(axis=1)


class AttentionMatrices(eqx.Module):
    """Linear attention as the paper writes it, with matrices and embeddings; a reference form."""

    W_OV: Float[Array, "dim dim"]
    W_KQ: Float[Array, "dim dim"]
    tokens: Float[Array, "tokens dim"]
    """φ(z) of the prompt tokens, EOS last."""
    answers: Float[Array, "answers dim"]
    """φ(a)."""

    @classmethod
    def from_reduced(
        cls, model: LinearAttention, dim: int, *, key: Key[Array, ""]
    ) -> "AttentionMatrices":
        """Return the minimum-norm matrices of a reduced form on random orthonormal embeddings.

        Token and answer embeddings may overlap, as in the authors' code: the logits are the same.

        Raises:
            FactmemError: `dim` is less than the number of tokens or of answers.
        """
        count, answers = model.ov.shape
        check_dim(dim, count, answers)
        token_key, answer_key = jr.split(key)
        tokens = orthonormal(count, dim, key=token_key)
        outputs = orthonormal(answers, dim, key=answer_key)
        with jax.default_matmul_precision("highest"):
            W_OV = outputs.T @ jnp.asarray(model.ov, tokens.dtype).T @ tokens
            W_KQ = jnp.outer(tokens.T @ jnp.asarray(model.kq, tokens.dtype), tokens[-1])
        return cls(W_OV, W_KQ, tokens, outputs)

    def reduce(self) -> LinearAttention:
        """Return the reduced form, W_OV(a, z) and W_KQ(z)."""
        with jax.default_matmul_precision("highest"):
            ov = self.tokens @ self.W_OV.T @ self.answers.T
            return LinearAttention(ov, self.tokens @ self.W_KQ @ self.tokens[-1])

    def logits(self, prompt: Float[Array, "length dim"]) -> Float[Array, " answers"]:
        """Compute φ(a)ᵀ W_OV Xᵀ X W_KQ x_T for the embeddings X of one prompt, in order."""
        with jax.default_matmul_precision("highest"):
            attended = prompt.T @ (prompt @ (self.W_KQ @ prompt[-1]))
            return self.answers @ (self.W_OV @ attended)


def check_dim(dim: int, tokens: int, answers: int) -> None:
    """Raise FactmemError if `dim` is too small for orthonormal embeddings."""
    if dim < max(tokens, answers):
        raise ArgumentError(
            "dim",
            f"must be at least {max(tokens, answers)} for orthonormal embeddings of {tokens} "
            f"prompt tokens and {answers} answers, got {dim}",
        )
