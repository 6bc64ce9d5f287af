"""MLP memories: F(e) = Vᵀ σ(W e + b), and the gated F(e) = Vᵀ ((A e) ⊙ (B e))."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from factmem._core.errors import FactmemError
from factmem.memories.activations import Activation
from factmem.memories.memory import Memory

__all__ = ["BilinearMemory", "MLPMemory", "checked_width"]

_EXACT = jax.lax.Precision.HIGHEST


class MLPMemory(Memory):
    """F(e) = Vᵀ σ(W e + b): the memory of Theorem 2, there without a bias.

    Args:
        into: W, one row a neuron.
        out: V, one row a neuron; 2 m d numbers, and m more with a bias.
        activation: σ.
        bias: b, or None.
    """

    into: Float[Array, "width dim"]
    out: Float[Array, "width dim"]
    activation: Activation = eqx.field(static=True)
    bias: Float[Array, " width"] | None = None

    def __call__(self, key: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Vᵀ σ(W e + b)."""
        inner = jnp.matmul(self.into, key, precision=_EXACT)
        hidden = self.activation(inner if self.bias is None else inner + self.bias)
        return jnp.matmul(self.out.T, hidden, precision=_EXACT)


class BilinearMemory(Memory):
    """F(e) = Vᵀ ((A e) ⊙ (B e)): every neuron multiplies two linear functions of the key.

    Args:
        left: A, one row a neuron.
        right: B, one row a neuron.
        out: V, one row a neuron; 3 m d numbers.
    """

    left: Float[Array, "width dim"]
    right: Float[Array, "width dim"]
    out: Float[Array, "width dim"]

    def __call__(self, key: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Vᵀ ((A e) ⊙ (B e))."""
        left = jnp.matmul(self.left, key, precision=_EXACT)
        right = jnp.matmul(self.right, key, precision=_EXACT)
        return jnp.matmul(self.out.T, left * right, precision=_EXACT)


def checked_width(width: int) -> int:
    """The same width, if an MLP can have it.

    Raises:
        FactmemError: no neurons.
    """
    if width < 1:
        raise FactmemError(f"an MLP memory needs at least one neuron, not {width}")
    return width
