"""Activations σ of MLPs: ReLU, and polynomials given by their Hermite coefficients."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from factmem._core.errors import FactmemError

__all__ = [
    "MAX_DEGREE",
    "Activation",
    "HermitePolynomial",
    "Relu",
    "activation_from_config",
    "hermite",
]

MAX_DEGREE = 100
_MAX_COEFFICIENT = 1e30


def hermite(degree: int, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Evaluate the orthonormal Hermite polynomial h_k(x) = He_k(x)/√k!.

    For g ~ N(0, 1), E h_j(g) h_k(g) = 1{j=k}.

    Args:
        degree: k.
        x: the points.
    """
    return HermitePolynomial((0.0,) * degree + (1.0,))(x)


@dataclass(frozen=True)
class Relu:
    """σ(x) = max(0, x), the activation of the authors' experiments."""

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Compute σ(x) elementwise."""
        return jax.nn.relu(x)

    def config(self) -> dict[str, Any]:
        """Return JSON data for `activation_from_config`."""
        return {"name": "relu"}


@dataclass(frozen=True)
class HermitePolynomial:
    """σ(x) = Σ_k c_k h_k(x) with orthonormal Hermite h_k: the activation of the theorems.

    Args:
        coefficients: c_0 … c_q.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        coefficients = tuple(float(c) for c in self.coefficients)
        object.__setattr__(self, "coefficients", coefficients)
        if not 1 <= len(coefficients) <= MAX_DEGREE + 1:
            raise FactmemError(
                f"a polynomial must have from 1 to {MAX_DEGREE + 1} coefficients, got "
                f"{len(coefficients)}"
            )
        if not all(abs(c) <= _MAX_COEFFICIENT for c in coefficients):
            raise FactmemError(
                f"coefficients must be finite, from −{_MAX_COEFFICIENT:.0e} to "
                f"{_MAX_COEFFICIENT:.0e}"
            )

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Compute σ(x) elementwise, by h_{k+1} = (x h_k − √k h_{k−1}) / √(k+1)."""
        previous, current = jnp.zeros_like(x), jnp.ones_like(x)
        total = self.coefficients[0] * current
        for k, coefficient in enumerate(self.coefficients[1:]):
            previous, current = current, (x * current - sqrt(k) * previous) / sqrt(k + 1)
            total = total + coefficient * current
        return total

    def derivative(self) -> "HermitePolynomial":
        """Return σ', by h_k' = √k h_{k−1}."""
        coefficients = tuple(sqrt(k) * c for k, c in enumerate(self.coefficients))[1:]
        return HermitePolynomial(coefficients or (0.0,))

    def config(self) -> dict[str, Any]:
        """Return JSON data for `activation_from_config`."""
        return {"name": "hermite", "coefficients": list(self.coefficients)}


Activation = Relu | HermitePolynomial


def activation_from_config(config: dict[str, Any]) -> Activation:
    """Return the activation with this `config()`.

    Raises:
        FactmemError: no activation has this configuration.
    """
    match config:
        case {"name": "relu"}:
            return Relu()
        case {"name": "hermite", "coefficients": [*coefficients]}:
            return HermitePolynomial(tuple(float(c) for c in coefficients))
        case _:
            raise FactmemError("the activation must be relu or a Hermite polynomial")
