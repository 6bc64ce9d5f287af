"""Theorem 2, main text: an MLP memory from random features and Hermite polynomials.

    w_i ~ N(0, I),    v_i = (1/m) Σ_x u_f*(x) h_k(⟨w_i, e_x⟩)
    F(e) = Σ_i v_i σ(⟨w_i, e⟩)  →  c_k Σ_x u_f*(x) ⟨e, e_x⟩^k      as the width m grows,

a memory of degree k: c_k is the k-th Hermite coefficient of σ.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.random import normal
from factmem.memories.activations import HIGHEST_DEGREE, HermitePolynomial, hermite
from factmem.memories.associations import Associations
from factmem.memories.mlp import MLPMemory, checked_width

__all__ = ["hermite_memory", "mixed_activation"]

_EXACT = jax.lax.Precision.HIGHEST
_NEURONS_AT_ONCE = 1024


def mixed_activation(degree: int, others: float = 0.1) -> HermitePolynomial:
    """σ = h_k + 0.1 Σ_{j<k} h_j: no Hermite coefficient is zero, as Theorem 2 assumes."""
    return HermitePolynomial((others,) * degree + (1.0,))


def hermite_memory(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    degree: int = 2,
    activation: HermitePolynomial | None = None,
) -> MLPMemory:
    """Random features with a Hebbian readout along h_k. f* may be many-to-one, at a price.

    An injective f* needs m d ≳ N; where n₂ keys share an answer it also needs m ≳ n₂, a price
    that `tangent_memory` does not pay.

    Args:
        key: randomness for the features.
        associations: what to store.
        width: m, the number of neurons.
        degree: k, at least 1.
        activation: σ; `mixed_activation(degree)` unless given.

    Raises:
        FactmemError: no neurons, a degree below 1, or c_k = 0.
    """
    width = checked_width(width)
    if not 1 <= degree <= HIGHEST_DEGREE:
        raise FactmemError(
            f"the degree of a Hermite memory is at least 1, at most {HIGHEST_DEGREE}, not {degree}"
        )
    activation = mixed_activation(degree) if activation is None else activation
    if len(activation.coefficients) <= degree or activation.coefficients[degree] == 0:
        raise FactmemError(f"the activation has no Hermite coefficient of degree {degree}")
    into = normal(key, (width, associations.dim))
    sign = jnp.sign(activation.coefficients[degree])

    def out_of_one(weights: Float[Array, " dim"]) -> Float[Array, " dim"]:
        features = hermite(degree, jnp.matmul(associations.keys, weights, precision=_EXACT))
        return jnp.matmul(associations.answers.T, features, precision=_EXACT)

    # The sign makes the margins positive for a negative c_k too.
    out = jax.lax.map(out_of_one, into, batch_size=_NEURONS_AT_ONCE) * sign / width
    return MLPMemory(into, out, activation)
