"""Theorem 1: linear memories F(e) = W e of full or low rank, as sums of outer products.

    (a)  W = Σ_x u_f*(x) e_xᵀ                              stores N when d² ≳ N, up to logarithms
    (b)  W = Σ_x u_f*(x) e_xᵀ · (1/m) Σ_i v_i v_iᵀ         stores N when m d ≳ N, v_i ~ N(0, I)

Both are one gradient step of size 1 on the correlation loss L(W) = −Σ_x u_f*(x)ᵀ W e_x: (a) from
W = 0; (b) in the left factor of W = U Vᵀ from U = 0 with V fixed, up to the factor 1/m.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from factmem._core.errors import ArgumentError
from factmem._core.random import normal
from factmem.memories.associations import Associations
from factmem.memories.memory import Memory

__all__ = [
    "LinearMemory",
    "LowRankMemory",
    "correlation_loss",
    "exact_match_rate",
    "hebbian",
    "least_squares",
    "low_rank",
]

_HIGHEST = jax.lax.Precision.HIGHEST


class LinearMemory(Memory):
    """F(e) = W e.

    Args:
        matrix: W, with d² parameters.
    """

    matrix: Float[Array, "dim dim"]

    def __call__(self, query: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Compute W e."""
        return jnp.matmul(self.matrix, query, precision=_HIGHEST)


class LowRankMemory(Memory):
    """F(e) = U Vᵀ e.

    Args:
        left: U, with m d parameters.
        right: V, with m d parameters.
    """

    left: Float[Array, "dim rank"]
    right: Float[Array, "dim rank"]

    def __call__(self, query: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Compute U (Vᵀ e)."""
        inner = jnp.matmul(self.right.T, query, precision=_HIGHEST)
        return jnp.matmul(self.left, inner, precision=_HIGHEST)

    @property
    def matrix(self) -> Float[Array, "dim dim"]:
        """W = U Vᵀ."""
        return jnp.matmul(self.left, self.right.T, precision=_HIGHEST)


def hebbian(associations: Associations) -> LinearMemory:
    """Construct W = Σ_x u_f*(x) e_xᵀ, as in Theorem 1 (a).

    For an injective f* the margins have mean 1 and variance about 2N/d² + 2/d.
    """
    return LinearMemory(_outer_products(associations))


def low_rank(associations: Associations, rank: int, *, key: Key[Array, ""]) -> LowRankMemory:
    """Construct W = Σ_x u_f*(x) e_xᵀ V Vᵀ/m with m random columns in V, as in Theorem 1 (b).

    Margins have mean 1 and variance about 2N/(dm) + 2N/d² + 2/m.

    Args:
        associations: what to store.
        rank: m, from 1 to d.
        key: the random key for V.

    Raises:
        FactmemError: the rank is not from 1 to d.
    """
    if not 1 <= rank <= associations.dim:
        raise ArgumentError("rank", f"must be from 1 to dim = {associations.dim}, got {rank}")
    right = normal(key, (associations.dim, rank))
    left = jnp.matmul(_outer_products(associations), right, precision=_HIGHEST) / rank
    return LowRankMemory(left, right)


def least_squares(associations: Associations) -> LinearMemory:
    """Solve W e_x = u_f*(x) by least squares, which is exact up to N = d."""
    solution, *_ = jnp.linalg.lstsq(associations.keys, associations.answers)
    return LinearMemory(solution.T)


def exact_match_rate(
    memory: Memory, associations: Associations, tolerance: float = 1e-3
) -> Float[Array, ""]:
    """Return the fraction of keys with ‖F(e_x) − u_f*(x)‖ ≤ tolerance (exact recall)."""
    errors = memory.outputs(associations.keys) - associations.answers
    return jnp.mean(jnp.linalg.norm(errors, axis=1) <= tolerance)


def correlation_loss(memory: Memory, associations: Associations) -> Float[Array, ""]:
    """Compute L = −Σ_x ⟨u_f*(x), F(e_x)⟩; the constructions are one gradient step on it."""
    return -jnp.sum(associations.answers * memory.outputs(associations.keys))


def _outer_products(associations: Associations) -> Float[Array, "dim dim"]:
    return jnp.matmul(associations.answers.T, associations.keys, precision=_HIGHEST)
