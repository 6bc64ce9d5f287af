"""Normal numbers of any shape, from few compiled programs.

jax compiles its generators for every new shape, which takes half a second each: longer than many
searches take to train a shape. Its numbers depend on a key and on their place alone, so that those
of a larger array begin with those of a smaller one: these are the same numbers as `jax.random`'s,
drawn in sizes that are powers of two and cut.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, Float, Key

__all__ = ["normal", "truncated_normal"]

_MOST = 2**18
"""Numbers, beyond which drawing twice as many takes longer than compiling."""


def normal(
    key: Key[Array, ""], shape: tuple[int, ...], dtype: Any = None
) -> Float[Array, "*shape"]:
    """Independent numbers N(0, 1)."""
    return _cut(partial(jr.normal, key, dtype=dtype), shape)


def truncated_normal(
    key: Key[Array, ""], lower: float, upper: float, shape: tuple[int, ...]
) -> Float[Array, "*shape"]:
    """The same, those outside of an interval never drawn."""
    return _cut(partial(jr.truncated_normal, key, lower, upper), shape)


def _cut(draw: Callable[..., Array], shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    if not 0 < count <= _MOST:
        return draw(shape=shape)
    return _first(draw(shape=(1 << (count - 1).bit_length(),)), shape)


@partial(jax.jit, static_argnums=1)
def _first(numbers: Array, shape: tuple[int, ...]) -> Array:
    return numbers[: math.prod(shape)].reshape(shape)
