"""Activations σ of an MLP: ReLU, or a polynomial given by its Hermite coefficients."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from factmem._core.errors import FactmemError

__all__ = [
    "HIGHEST_DEGREE",
    "Activation",
    "HermitePolynomial",
    "Relu",
    "activation_from_config",
    "hermite",
]

HIGHEST_DEGREE = 100
_LARGEST_COEFFICIENT = 1e30


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
        coefficients = tuple(float(c) for c in self.coefficients)
        object.__setattr__(self, "coefficients", coefficients)
        if not 1 <= len(coefficients) <= HIGHEST_DEGREE + 1:
            raise FactmemError(f"a polynomial has a degree from 0 to {HIGHEST_DEGREE}")
        if not all(abs(c) <= _LARGEST_COEFFICIENT for c in coefficients):
            raise FactmemError(f"coefficients are finite, up to {_LARGEST_COEFFICIENT}")

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """σ(x), entry by entry, by h_{k+1} = (x h_k − √k h_{k−1}) / √(k+1)."""
        before, here = jnp.zeros_like(x), jnp.ones_like(x)
        total = self.coefficients[0] * here
        for k, coefficient in enumerate(self.coefficients[1:]):
            before, here = here, (x * here - sqrt(k) * before) / sqrt(k + 1)
            total = total + coefficient * here
        return total

    def derivative(self) -> "HermitePolynomial":
        """σ', by h_k' = √k h_{k−1}."""
        slopes = tuple(sqrt(k) * c for k, c in enumerate(self.coefficients))[1:]
        return HermitePolynomial(slopes or (0.0,))

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
