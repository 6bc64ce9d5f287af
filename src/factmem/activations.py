"""Activations σ of an MLP: ReLU, or a polynomial given by its Hermite coefficients."""

from dataclasses import dataclass
from math import factorial, isfinite, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import hermite_e

from factmem.errors import FactmemError

__all__ = ["Activation", "HermitePolynomial", "Relu", "activation_from_config", "hermite"]


def hermite(degree: int, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The orthonormal Hermite polynomial h_k(x) = He_k(x)/√k!, so that E h_j(g) h_k(g) = 1{j=k}.

    Args:
        degree: k.
        x: where; g ~ N(0, 1) above.
    """
    return HermitePolynomial((0.0,) * degree + (1.0,))(x)


@dataclass(frozen=True)
class Relu:
    """σ(x) = max(0, x), the activation of the authors' experiments."""

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """σ(x), entry by entry."""
        return jax.nn.relu(x)

    def config(self) -> dict[str, Any]:
        """JSON data from which `activation_from_config` makes this activation again."""
        return {"name": "relu"}


@dataclass(frozen=True)
class HermitePolynomial:
    """σ(x) = Σ_k c_k h_k(x) with orthonormal Hermite h_k: the activation of the theorems.

    Args:
        coefficients: c_0 … c_q.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.coefficients or not all(isfinite(c) for c in self.coefficients):
            raise FactmemError("a polynomial needs at least one coefficient, all of them finite")

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """σ(x), entry by entry."""
        return jnp.polyval(jnp.asarray(self._powers(), x.dtype), x)

    def _powers(self) -> np.ndarray:
        """Coefficients of x^q … x^0."""
        scaled = [c / sqrt(factorial(k)) for k, c in enumerate(self.coefficients)]
        return hermite_e.herme2poly(scaled)[::-1]

    def config(self) -> dict[str, Any]:
        """JSON data from which `activation_from_config` makes this activation again."""
        return {"name": "hermite", "coefficients": list(self.coefficients)}


Activation = Relu | HermitePolynomial


def activation_from_config(config: dict[str, Any]) -> Activation:
    """The activation whose `config()` this is.

    Raises:
        FactmemError: no activation has this configuration.
    """
    match config:
        case {"name": "relu"}:
            return Relu()
        case {"name": "hermite", "coefficients": [*coefficients]}:
            return HermitePolynomial(tuple(float(c) for c in coefficients))
        case _:
            raise FactmemError("the activation is neither relu nor a Hermite polynomial")
