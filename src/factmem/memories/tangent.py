"""Theorem 2, appendix: the neural-tangent memory, and the genuine MLP made from it.

    v_i, w_i ~ N(0, I),   p_i = Σ_x ⟨v_i, u_f*(x)⟩ h_k(⟨w_i, e_x⟩) e_x,   k even
    F(e) = (1/m) Σ_i v_i σ'(⟨w_i, e⟩) ⟨p_i, e⟩  →  √(k+1) c_{k+1} Σ_x u_f*(x) ⟨e, e_x⟩^{k+1}

Its kernel carries one more factor ⟨e, e_x⟩ than that of random features, an odd power in all, so
cross terms have mean zero and keys that share an answer cost m d rather than m.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.random import normal
from factmem.memories.activations import HIGHEST_DEGREE, HermitePolynomial, hermite
from factmem.memories.associations import Associations
from factmem.memories.hermite import mixed_activation
from factmem.memories.memory import Memory
from factmem.memories.mlp import MLPMemory, checked_width

__all__ = ["TangentMemory", "paired_neurons", "tangent_memory"]

_EXACT = jax.lax.Precision.HIGHEST
_NEURONS_AT_ONCE = 1024


class TangentMemory(Memory):
    """F(e) = (1/m) Σ_i v_i σ'(⟨w_i, e⟩) ⟨p_i, e⟩: an MLP's response to moving w_i by p_i.

    Args:
        out: v_i, one row a neuron.
        into: w_i.
        displacement: p_i.
        activation: σ, of which the derivative acts.
    """

    out: Float[Array, "width dim"]
    into: Float[Array, "width dim"]
    displacement: Float[Array, "width dim"]
    activation: HermitePolynomial = eqx.field(static=True)

    def __call__(self, key: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """(1/m) Σ_i v_i σ'(⟨w_i, e⟩) ⟨p_i, e⟩."""
        slope = self.activation.derivative()(jnp.matmul(self.into, key, precision=_EXACT))
        moved = jnp.matmul(self.displacement, key, precision=_EXACT)
        return jnp.matmul(self.out.T, slope * moved, precision=_EXACT) / self.out.shape[0]


def tangent_memory(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    degree: int = 2,
    activation: HermitePolynomial | None = None,
) -> TangentMemory:
    """The displacements p_i that store these associations; f* may be many-to-one.

    Args:
        key: randomness for v and w.
        associations: what to store.
        width: m, the number of neurons.
        degree: k, even; F is then of degree k + 1.
        activation: σ; `mixed_activation(degree + 1)` unless given.

    Raises:
        FactmemError: no neurons, an odd or negative degree, or c_{k+1} = 0.
    """
    width = checked_width(width)
    if degree < 0 or degree % 2:
        raise FactmemError(
            f"the tangent construction needs an even degree, not {degree}: with an odd one the "
            f"kernel is even, and other keys no longer cancel"
        )
    if degree >= HIGHEST_DEGREE:
        raise FactmemError(f"the tangent construction's degree is below {HIGHEST_DEGREE}")
    activation = mixed_activation(degree + 1) if activation is None else activation
    if len(activation.coefficients) <= degree + 1 or activation.coefficients[degree + 1] == 0:
        raise FactmemError(f"the activation has no Hermite coefficient of degree {degree + 1}")
    out_key, into_key = jr.split(key)
    shape = (width, associations.dim)
    into, out = normal(into_key, shape), normal(out_key, shape)
    sign = jnp.sign(activation.coefficients[degree + 1])

    def displacement_of_one(pair: tuple[Array, Array]) -> Float[Array, " dim"]:
        weights, readout = pair
        features = hermite(degree, jnp.matmul(associations.keys, weights, precision=_EXACT))
        wanted = jnp.matmul(associations.answers, readout, precision=_EXACT)
        return jnp.matmul(associations.keys.T, wanted * features, precision=_EXACT)

    displacement = jax.lax.map(displacement_of_one, (into, out), batch_size=_NEURONS_AT_ONCE)
    return TangentMemory(out, into, sign * displacement, activation)


def paired_neurons(tangent: TangentMemory, step: float = 1e-2) -> MLPMemory:
    """A genuine MLP of 2m neurons that is the tangent memory up to O(step²).

    Rows w_i + η p_i with output v_i/(2ηm), and rows w_i − η p_i with output −v_i/(2ηm): a central
    difference of σ along p_i. Much smaller steps lose digits in float32, much larger ones leave
    the tangent.

    Args:
        tangent: the memory to imitate.
        step: η.

    Raises:
        FactmemError: a step that is not positive.
    """
    if not step > 0:
        raise FactmemError(f"the step of a central difference is positive, not {step}")
    away = step * tangent.displacement
    out = tangent.out / (2 * step * tangent.out.shape[0])
    return MLPMemory(
        into=jnp.concatenate([tangent.into + away, tangent.into - away]),
        out=jnp.concatenate([out, -out]),
        activation=tangent.activation,
    )
