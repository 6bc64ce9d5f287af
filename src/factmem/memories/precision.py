"""How precise a memory's weights must be: rounding to b bits, and relative Gaussian noise."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.random import normal
from factmem.memories.associations import Associations
from factmem.memories.memory import Memory

__all__ = [
    "MOST_BITS",
    "bits_needed",
    "fewest_bits",
    "noise_tolerated",
    "noisy",
    "rounded",
    "rounded_to_multiples",
]

MOST_BITS = 24
"""As many as a float32 carries: more bits change nothing."""
_LARGEST_NOISE = 1e6
_DRAWS = 5
_LEAST_NOISE, _MOST_NOISE = 2.0**-24, 4.0
_HALVINGS = 10

M = TypeVar("M")


def rounded(memory: M, bits: int) -> M:
    """Every weight at b bits: the nearest of 2^b equally spaced levels between ± the largest.

    Of a memory or any other tree of arrays. Each tensor has one scale, its largest magnitude s:
    levels −s + 2s·j/(2^b − 1).

    Raises:
        FactmemError: bits outside 1 to 24.
    """
    if not 1 <= bits <= MOST_BITS:
        raise FactmemError(f"weights have from 1 to {MOST_BITS} bits, not {bits}")

    def nearest_level(weights: np.ndarray) -> np.ndarray:
        largest = np.abs(weights).max(initial=0.0)
        if largest == 0:
            return weights
        step = 2 * largest / (2**bits - 1)
        return np.round((weights + largest) / step) * step - largest

    return _changed(memory, nearest_level)


def rounded_to_multiples(memory: M, step: float) -> M:
    """Every weight at the nearest multiple of ε, as the paper's corollary has it.

    For unit vectors a margin of a linear memory moves by at most ε d, so every ε below
    γ_min/d keeps all margins positive; a margin of 1/2 survives every ε < 1/(2d).

    Raises:
        FactmemError: a step that is not positive.
    """
    if not step > 0:
        raise FactmemError(f"weights are rounded to multiples of a positive number, not {step}")
    return _changed(memory, lambda weights: np.round(weights / step) * step)


def noisy(memory: M, key: Key[Array, ""], sigma: float) -> M:
    """Every weight times 1 + σ g, with independent g ~ N(0, 1).

    Raises:
        FactmemError: a σ that is negative or not finite.
    """
    if not 0 <= sigma <= _LARGEST_NOISE:
        raise FactmemError(f"the noise of weights is from 0 to {_LARGEST_NOISE:.0e}, not {sigma}")
    return _noisy(memory, key, jnp.asarray(sigma, jnp.float32))


def bits_needed(memory: Memory, associations: Associations, criterion: float = 1.0) -> int | None:
    """The smallest b such that at b bits, and at every larger number, enough is recalled.

    Args:
        memory: what is asked.
        associations: what it was to store.
        criterion: the share of them that is enough.

    Returns:
        b, or None where even 24 bits are too few.

    Raises:
        FactmemError: a criterion that is no share.
    """
    return fewest_bits(lambda bits: _recalled(rounded(memory, bits), associations), criterion)


def fewest_bits(recalled_at: Callable[[int], float], criterion: float) -> int | None:
    """The smallest b such that at b bits, and at every larger number, enough is recalled.

    Args:
        recalled_at: the share that is recalled with weights of so many bits.
        criterion: the share that is enough.

    Raises:
        FactmemError: a criterion that is no share.
    """
    if not 0 < criterion <= 1:
        raise FactmemError(f"a criterion is a share above 0, up to 1, not {criterion}")
    fewest = None
    for bits in range(MOST_BITS, 0, -1):
        if recalled_at(bits) < criterion:
            break
        fewest = bits
    return fewest


def noise_tolerated(
    memory: Memory, associations: Associations, key: Key[Array, ""]
) -> float | None:
    """The largest σ at which each of five draws of `noisy` still recalls everything.

    Found by bisection of log σ, to 2 %, on the assumption that what survives more noise survives
    less of the same.

    Returns:
        σ, or None where the least noise of 2⁻²⁴ is too much already.
    """
    keys = jr.split(key, _DRAWS)

    def survives(sigma: float) -> bool:
        return all(_recalled(noisy(memory, one, sigma), associations) == 1 for one in keys)

    if not survives(_LEAST_NOISE):
        return None
    low, high = np.log(_LEAST_NOISE), np.log(_MOST_NOISE)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if survives(float(np.exp(middle))) else (low, middle)
    return float(np.exp(low))


def _recalled(memory: Memory, associations: Associations) -> float:
    """The share of them; exactly 1 if it is all."""
    return float(np.mean(np.asarray(memory.smallest_margins(associations).margin) > 0))


def _changed(memory: M, change: Callable[[np.ndarray], np.ndarray]) -> M:
    weights, rest = eqx.partition(memory, eqx.is_inexact_array)
    # In float64: a step of 2⁻²⁴ of the largest weight is a float32's own.
    weights = jax.tree.map(
        lambda leaf: jnp.asarray(change(np.asarray(leaf, np.float64)).astype(leaf.dtype)), weights
    )
    return eqx.combine(weights, rest)


@eqx.filter_jit
def _noisy(memory: M, key: Array, sigma: Float[Array, ""]) -> M:
    weights, rest = eqx.partition(memory, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(weights)
    keys = jr.split(key, len(leaves))
    leaves = [
        leaf * (1 + sigma.astype(leaf.dtype) * normal(one, leaf.shape, leaf.dtype))
        for leaf, one in zip(leaves, keys, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)
