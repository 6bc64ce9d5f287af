"""Normal random numbers of any shape from a few compiled programs.

jax compiles its generators for every new shape, which takes half a second: more than many capacity
searches need to train one size. Its random numbers depend only on the key and the position, so a
longer array starts with the numbers of a shorter one. These functions draw arrays whose sizes are
powers of two and cut them; the numbers are the same as those of `jax.random`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Key

__all__ = ["normal", "truncated_normal"]

_MAX_PADDED_SIZE = 2**18
"""Above this many numbers, drawing twice as many takes longer than compiling."""


def normal(
    key: Key[Array, ""], shape: tuple[int, ...], dtype: Any = None
) -> Float[Array, "*shape"]:
    """Draw independent N(0, 1) numbers."""
    return _draw_padded(partial(jr.normal, key, dtype=dtype), shape)


def truncated_normal(
    key: Key[Array, ""], lower: float, upper: float, shape: tuple[int, ...]
) -> Float[Array, "*shape"]:
    """Draw independent N(0, 1) numbers conditioned on lower < x < upper."""
    return _draw_padded(partial(jr.truncated_normal, key, lower, upper), shape)


def _draw_padded(draw: Callable[..., Array], shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    if not 0 < count <= _MAX_PADDED_SIZE:
        return draw(shape=shape)
    return _cut(draw(shape=(1 << (count - 1).bit_length(),)), shape)


def _cut(numbers: Array, shape: tuple[int, ...]) -> Array:
    if isinstance(numbers, Tracer):
        return numbers[: math.prod(shape)].reshape(shape)
    # In numpy, because jax would compile a slice for every shape.
    return jax.device_put(np.asarray(numbers)[: math.prod(shape)].reshape(shape))
