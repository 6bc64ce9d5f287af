"""Theorem 2, appendix: the neural tangent memory, and an MLP that approximates it.

    v_i, w_i ~ N(0, I),   p_i = Σ_x ⟨v_i, u_f*(x)⟩ h_k(⟨w_i, e_x⟩) e_x,   k even
    F(e) = (1/m) Σ_i v_i σ'(⟨w_i, e⟩) ⟨p_i, e⟩  →  √(k+1) c_{k+1} Σ_x u_f*(x) ⟨e, e_x⟩^{k+1}

Its kernel has one more factor ⟨e, e_x⟩ than that of random features. The power is odd, so cross
terms have mean zero, and the number of keys that share an answer is limited by m d, not by m.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.random import normal
from factmem.memories.activations import MAX_DEGREE, HermitePolynomial, hermite
from factmem.memories.associations import Associations
from factmem.memories.hermite import mixed_activation
from factmem.memories.memory import Memory
from factmem.memories.mlp import MLPMemory, check_width

__all__ = ["TangentMemory", "paired_neurons", "tangent_memory"]

_HIGHEST = jax.lax.Precision.HIGHEST
_BLOCK_NEURONS = 1024


class TangentMemory(Memory):
    """F(e) = (1/m) Σ_i v_i σ'(⟨w_i, e⟩) ⟨p_i, e⟩: the derivative of an MLP when w_i moves by p_i.

    Args:
        out: v_i, one row per neuron.
        into: w_i, one row per neuron.
        displacement: p_i, one row per neuron.
        activation: σ; the memory applies its derivative.
    """

    out: Float[Array, "width dim"]
    into: Float[Array, "width dim"]
    displacement: Float[Array, "width dim"]
    activation: HermitePolynomial = eqx.field(static=True)

    def __call__(self, query: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Compute (1/m) Σ_i v_i σ'(⟨w_i, e⟩) ⟨p_i, e⟩."""
        slope = self.activation.derivative()(jnp.matmul(self.into, query, precision=_HIGHEST))
        shift = jnp.matmul(self.displacement, query, precision=_HIGHEST)
        return jnp.matmul(self.out.T, slope * shift, precision=_HIGHEST) / self.out.shape[0]


def tangent_memory(
    associations: Associations,
    width: int,
    degree: int = 2,
    activation: HermitePolynomial | None = None,
    *,
    key: Key[Array, ""],
) -> TangentMemory:
    """Construct a tangent memory that stores these associations.

    Args:
        associations: what to store; f* need not be injective.
        width: m, the number of neurons.
        degree: k, even; F has degree k + 1.
        activation: σ; `mixed_activation(degree + 1)` by default.
        key: the random key for v and w.

    Raises:
        FactmemError: the width is below 1, the degree is odd or not from 0 to 98, or c_{k+1} = 0.
    """
    width = check_width(width)
    if degree < 0 or degree % 2:
        raise ArgumentError(
            "degree",
            f"must be even and at least 0, got {degree}: with an odd degree the kernel is "
            f"even, and the contributions of other keys do not cancel",
        )
    if degree >= MAX_DEGREE:
        raise ArgumentError("degree", f"must be below {MAX_DEGREE}, got {degree}")
    activation = mixed_activation(degree + 1) if activation is None else activation
    if len(activation.coefficients) <= degree + 1 or activation.coefficients[degree + 1] == 0:
        raise FactmemError(
            f"the Hermite coefficient of degree {degree + 1} of the activation is zero"
        )
    out_key, into_key = jr.split(key)
    shape = (width, associations.dim)
    into, out = normal(into_key, shape), normal(out_key, shape)
    sign = jnp.sign(activation.coefficients[degree + 1])

    def displacement_of_neuron(pair: tuple[Array, Array]) -> Float[Array, " dim"]:
        weights, readout = pair
        features = hermite(degree, jnp.matmul(associations.keys, weights, precision=_HIGHEST))
        projections = jnp.matmul(associations.answers, readout, precision=_HIGHEST)
        return jnp.matmul(associations.keys.T, projections * features, precision=_HIGHEST)

    displacement = jax.lax.map(displacement_of_neuron, (into, out), batch_size=_BLOCK_NEURONS)
    return TangentMemory(out, into, sign * displacement, activation)


def paired_neurons(tangent: TangentMemory, step: float = 1e-2) -> MLPMemory:
    """Construct an MLP of 2m neurons that equals the tangent memory up to O(step²).

    Its neurons w_i + η p_i with output v_i/(2ηm) and w_i − η p_i with output −v_i/(2ηm) form a
    central difference of σ along p_i. A much smaller step loses digits in float32; a much larger
    one has a large approximation error.

    Args:
        tangent: the memory to approximate.
        step: η.

    Raises:
        FactmemError: the step is not positive.
    """
    if not step > 0:
        raise FactmemError(f"step must be positive, got {step}")
    shift = step * tangent.displacement
    out = tangent.out / (2 * step * tangent.out.shape[0])
    return MLPMemory(
        into=jnp.concatenate([tangent.into + shift, tangent.into - shift]),
        out=jnp.concatenate([out, -out]),
        activation=tangent.activation,
    )
