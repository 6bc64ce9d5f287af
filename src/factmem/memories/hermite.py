"""Theorem 2, main text: an MLP memory with random features and a Hermite readout.

    w_i ~ N(0, I),    v_i = (1/m) Σ_x u_f*(x) h_k(⟨w_i, e_x⟩)
    F(e) = Σ_i v_i σ(⟨w_i, e⟩)  →  c_k Σ_x u_f*(x) ⟨e, e_x⟩^k      as the width m grows,

a memory of degree k, where c_k is the k-th Hermite coefficient of σ.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.random import normal
from factmem.memories.activations import MAX_DEGREE, HermitePolynomial, hermite
from factmem.memories.associations import Associations
from factmem.memories.mlp import MLPMemory, check_width

__all__ = ["hermite_memory", "mixed_activation"]

_HIGHEST = jax.lax.Precision.HIGHEST
_BLOCK_NEURONS = 1024


def mixed_activation(degree: int, others: float = 0.1) -> HermitePolynomial:
    """Return σ = h_k + 0.1 Σ_{j<k} h_j, whose coefficients are not zero, as Theorem 2 assumes."""
    return HermitePolynomial((others,) * degree + (1.0,))


def hermite_memory(
    associations: Associations,
    width: int,
    degree: int = 2,
    activation: HermitePolynomial | None = None,
    *,
    key: Key[Array, ""],
) -> MLPMemory:
    """Construct an MLP memory from random features and a Hebbian readout along h_k.

    An injective f* needs m d ≳ N. If n₂ keys share an answer, m ≳ n₂ is needed as well;
    `tangent_memory` avoids this.

    Args:
        associations: what to store; f* need not be injective.
        width: m, the number of neurons.
        degree: k, at least 1.
        activation: σ; `mixed_activation(degree)` by default.
        key: the random key for the features.

    Raises:
        FactmemError: the width is below 1, the degree is not from 1 to 100, or c_k = 0.
    """
    width = check_width(width)
    if not 1 <= degree <= MAX_DEGREE:
        raise ArgumentError("degree", f"must be from 1 to {MAX_DEGREE}, got {degree}")
    activation = mixed_activation(degree) if activation is None else activation
    if len(activation.coefficients) <= degree or activation.coefficients[degree] == 0:
        raise FactmemError(f"the Hermite coefficient of degree {degree} of the activation is zero")
    into = normal(key, (width, associations.dim))
    sign = jnp.sign(activation.coefficients[degree])

    def output_weights(weights: Float[Array, " dim"]) -> Float[Array, " dim"]:
        features = hermite(degree, jnp.matmul(associations.keys, weights, precision=_HIGHEST))
        return jnp.matmul(associations.answers.T, features, precision=_HIGHEST)

    # The sign makes the margins positive if c_k is negative.
    out = jax.lax.map(output_weights, into, batch_size=_BLOCK_NEURONS) * sign / width
    return MLPMemory(into, out, activation)
