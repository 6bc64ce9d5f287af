"""MLP memories: F(e) = Vᵀ σ(W e + b), and the gated F(e) = Vᵀ ((A e) ⊙ (B e))."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from factmem._core.errors import ArgumentError
from factmem.memories.activations import Activation
from factmem.memories.memory import Memory

__all__ = ["BilinearMemory", "MLPMemory", "check_width"]

_HIGHEST = jax.lax.Precision.HIGHEST


class MLPMemory(Memory):
    """F(e) = Vᵀ σ(W e + b), with 2 m d parameters and m more with a bias (Theorem 2: no bias).

    Args:
        into: W, one row per neuron.
        out: V, one row per neuron.
        activation: σ.
        bias: b, or None.
    """

    into: Float[Array, "width dim"]
    out: Float[Array, "width dim"]
    activation: Activation = eqx.field(static=True)
    bias: Float[Array, " width"] | None = None

    def __call__(self, query: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Compute Vᵀ σ(W e + b)."""
        inner = jnp.matmul(self.into, query, precision=_HIGHEST)
        hidden = self.activation(inner if self.bias is None else inner + self.bias)
        return jnp.matmul(self.out.T, hidden, precision=_HIGHEST)


class BilinearMemory(Memory):
    """F(e) = Vᵀ ((A e) ⊙ (B e)), with 3 m d parameters.

    Args:
        left: A, one row per neuron.
        right: B, one row per neuron.
        out: V, one row per neuron.
    """

    left: Float[Array, "width dim"]
    right: Float[Array, "width dim"]
    out: Float[Array, "width dim"]

    def __call__(self, query: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Compute Vᵀ ((A e) ⊙ (B e))."""
        left = jnp.matmul(self.left, query, precision=_HIGHEST)
        right = jnp.matmul(self.right, query, precision=_HIGHEST)
        return jnp.matmul(self.out.T, left * right, precision=_HIGHEST)


def check_width(width: int) -> int:
    """Return the width if an MLP can have it.

    Raises:
        FactmemError: the width is below 1.
    """
    if width < 1:
        raise ArgumentError("width", f"must be at least 1, got {width}")
    return width
