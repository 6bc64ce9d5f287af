"""Precision of weights: rounding to b bits, and relative Gaussian noise."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.random import normal

if TYPE_CHECKING:
    from factmem.memories.associations import Associations
    from factmem.memories.memory import Memory

__all__ = [
    "MAX_BITS",
    "bits_needed",
    "fewest_bits",
    "noise_tolerated",
    "noisy",
    "rounded",
    "rounded_to_integers",
    "rounded_to_multiples",
]

MAX_BITS = 24
"""The precision of float32; more bits change nothing."""
_MAX_SIGMA = 1e6
_NOISE_DRAWS = 5
_SEARCH_LOW, _SEARCH_HIGH = 2.0**-24, 4.0
_BISECTION_STEPS = 10

M = TypeVar("M")


def rounded(memory: M, bits: int) -> M:
    """Round every weight to the nearest of 2^b equally spaced levels.

    Each tensor has its own scale, its largest magnitude s; the levels are −s + 2s·j/(2^b − 1).

    Args:
        memory: a memory or any other pytree of arrays.
        bits: b, from 1 to 24.

    Raises:
        FactmemError: bits are not from 1 to 24.
    """
    if not 1 <= bits <= MAX_BITS:
        raise FactmemError(f"bits must be from 1 to {MAX_BITS}, got {bits}")

    def nearest_level(weights: np.ndarray) -> np.ndarray:
        largest = np.abs(weights).max(initial=0.0)
        if largest == 0:
            return weights
        step = 2 * largest / (2**bits - 1)
        return np.round((weights + largest) / step) * step - largest

    return _map_weights(nearest_level, memory)


def rounded_to_integers(memory: M, bits: int) -> M:
    """Round every weight to a signed integer of b bits times one scale; zero stays zero.

    Each tensor has its own scale, its largest magnitude divided by 2^(b−1) − 1.

    Args:
        memory: a memory or any other pytree of arrays.
        bits: b, from 2 to 24.

    Raises:
        FactmemError: bits are not from 2 to 24.
    """
    if not 2 <= bits <= MAX_BITS:
        raise FactmemError(f"bits must be from 2 to {MAX_BITS}, got {bits}")

    def nearest_level(weights: np.ndarray) -> np.ndarray:
        largest = np.abs(weights).max(initial=0.0)
        if largest == 0:
            return weights
        step = largest / (2 ** (bits - 1) - 1)
        return np.round(weights / step) * step

    return _map_weights(nearest_level, memory)


def rounded_to_multiples(memory: M, step: float) -> M:
    """Round every weight to the nearest multiple of ε, as in the paper's corollary.

    For unit vectors a margin of a linear memory changes by at most ε d, so all margins stay
    positive if ε < γ_min/d; with a margin of 1/2, if ε < 1/(2d).

    Args:
        memory: a memory or any other pytree of arrays.
        step: ε.

    Raises:
        FactmemError: the step is not positive.
    """
    if not step > 0:
        raise FactmemError(f"step must be positive, got {step}")
    return _map_weights(lambda weights: np.round(weights / step) * step, memory)


def noisy(memory: M, sigma: float, *, key: Key[Array, ""]) -> M:
    """Multiply every weight by 1 + σ g with independent g ~ N(0, 1).

    Raises:
        FactmemError: σ is not from 0 to 10⁶.
    """
    if not 0 <= sigma <= _MAX_SIGMA:
        raise FactmemError(f"sigma must be from 0 to {_MAX_SIGMA:.0e}, got {sigma}")
    return _noisy(memory, key, jnp.asarray(sigma, jnp.float32))


def bits_needed(
    memory: "Memory", associations: "Associations", criterion: float = 1.0
) -> int | None:
    """Return the smallest b such that b bits, and every larger number, reach the criterion.

    Args:
        memory: the memory.
        associations: the associations that it stores.
        criterion: the required accuracy.

    Returns:
        b, or None if 24 bits are not enough.

    Raises:
        FactmemError: the criterion is not above 0 and at most 1.
    """
    return fewest_bits(lambda bits: _accuracy(rounded(memory, bits), associations), criterion)


def fewest_bits(accuracy_at: Callable[[int], float], criterion: float) -> int | None:
    """Return the smallest b such that b bits, and every larger number, reach the criterion.

    Args:
        accuracy_at: returns the accuracy with weights of a given number of bits.
        criterion: the required accuracy.

    Returns:
        b, or None if 24 bits are not enough.

    Raises:
        FactmemError: the criterion is not above 0 and at most 1.
    """
    if not 0 < criterion <= 1:
        raise FactmemError(f"criterion must be above 0 and at most 1, got {criterion}")
    fewest = None
    for bits in range(MAX_BITS, 0, -1):
        if accuracy_at(bits) < criterion:
            break
        fewest = bits
    return fewest


def noise_tolerated(
    memory: "Memory", associations: "Associations", *, key: Key[Array, ""]
) -> float | None:
    """Return the largest σ at which each of five draws of `noisy` recalls all associations.

    Bisects log σ to 2%, assuming that a memory that survives some noise also survives less noise
    in the same direction.

    Returns:
        σ, or None if σ = 2⁻²⁴ is too large.
    """
    keys = jr.split(key, _NOISE_DRAWS)

    def survives(sigma: float) -> bool:
        return all(_accuracy(noisy(memory, sigma, key=k), associations) == 1 for k in keys)

    if not survives(_SEARCH_LOW):
        return None
    low, high = np.log(_SEARCH_LOW), np.log(_SEARCH_HIGH)
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if survives(float(np.exp(middle))) else (low, middle)
    return float(np.exp(low))


def _accuracy(memory: "Memory", associations: "Associations") -> float:
    """Return the fraction of recalled associations, exactly 1 if all are recalled."""
    return float(np.mean(np.asarray(memory.smallest_margins(associations).margin) > 0))


def _map_weights(function: Callable[[np.ndarray], np.ndarray], memory: M) -> M:
    weights, rest = eqx.partition(memory, eqx.is_inexact_array)
    # In float64, because 2⁻²⁴ of the largest weight is the precision of float32.
    weights = jax.tree.map(
        lambda leaf: jnp.asarray(function(np.asarray(leaf, np.float64)).astype(leaf.dtype)), weights
    )
    return eqx.combine(weights, rest)


@eqx.filter_jit
def _noisy(memory: M, key: Array, sigma: Float[Array, ""]) -> M:
    weights, rest = eqx.partition(memory, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(weights)
    keys = jr.split(key, len(leaves))
    leaves = [
        leaf * (1 + sigma.astype(leaf.dtype) * normal(leaf_key, leaf.shape, leaf.dtype))
        for leaf, leaf_key in zip(leaves, keys, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)
