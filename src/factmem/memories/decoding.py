"""Reading an answer out of a vector: y = argmax over y of ⟨u_y, F⟩, its margins and its losses.

Everything here takes the outputs F(e_x) of N keys and works on blocks of them, so that of the
N × M scores only a bounded block is ever in memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

__all__ = [
    "MarginLoss",
    "Margins",
    "cross_entropy_of_one",
    "decodable",
    "decode",
    "loss_of_each",
    "margins_in_full",
    "recalled",
    "smallest_margins",
]

_BLOCK_ENTRIES = 2**20
_EXACT = jax.lax.Precision.HIGHEST

MarginLoss = Callable[[Float[Array, " outputs"]], tuple[Float[Array, ""], Float[Array, " outputs"]]]
"""A loss of one key, given its gaps ⟨u_y − u_f*(x), F(e_x)⟩ = −γ_xy, which are −∞ at y = f*(x).

Returns the loss and its derivative with respect to every gap, zero at y = f*(x).
"""


class Margins(NamedTuple):
    """The smallest margins of every key; a key is recalled when its margin is positive."""

    margin: Float[Array, " facts"]
    """min over y ≠ f*(x) of (u_f*(x) − u_y)·F(e_x); infinite if there is no other y."""
    relative: Float[Array, " facts"]
    """The same with each term divided by ‖F(e_x)‖ ‖u_f*(x) − u_y‖: a cosine, free of scale."""


def decode(
    outputs: Float[Array, "facts dim"], values: Float[Array, "outputs dim"]
) -> Int[Array, " facts"]:
    """argmax over y of ⟨u_y, F⟩ for every F; of equal scores the first, NaN before all."""
    return _over_blocks(lambda output: jnp.argmax(_scores(output, values)), outputs, _rows(values))


def decodable(values: Float[np.ndarray, "outputs dim"]) -> Bool[np.ndarray, " outputs"]:
    """Whether some vector decodes to y: whether u_y is a corner of the convex hull of all.

    What lies within the hull of the others is never the arg-max, whatever model stands before it.
    In few dimensions that happens to many: of 64 Gaussian vectors in d = 8 to about one in 25.

    Examples:
        >>> decodable(np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.1, 0.1]]))
        array([ True,  True,  True, False])
    """
    from scipy.optimize import linprog

    values = np.asarray(values, np.float64)
    values = values / (np.abs(values).max() or 1.0)  # the solver drops numbers that are tiny
    own = values @ values.T
    # u_y itself decodes to y for most, and only the others need a linear program.
    found = (own.diagonal()[:, None] > own).sum(axis=1) == len(values) - 1
    for place in np.flatnonzero(~found):
        apart = values[place] - np.delete(values, place, axis=0)
        solved: Any = linprog(
            np.zeros(values.shape[1]), A_ub=-apart, b_ub=-np.ones(len(apart)), bounds=(None, None)
        )
        found[place] = solved.status == 0
    return found


def recalled(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Bool[Array, " facts"]:
    """Whether the right answer of every key beats all others; a tie is no recall."""
    return _over_blocks(
        lambda pair: jnp.all(_margins(pair[0], values, pair[1]) > 0),
        (outputs, target),
        _rows(values),
    )


def smallest_margins(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Margins:
    """The smallest margin of every key over all wrong answers, plain and relative.

    A tie counts as not recalled: its margin is zero. Scores that are NaN give NaN.
    """
    units = values / _largest(values)

    def of_one(output_and_target: tuple[Array, Array]) -> Margins:
        output, right = output_and_target
        # Relative margins have no scale, so they are taken where nothing over- or underflows.
        unit = output / _largest(output)
        lengths = jnp.linalg.norm(units[right][None, :] - units, axis=1) * jnp.linalg.norm(unit)
        margins = _margins(unit, units, right)
        # Equal vectors leave nothing to tell apart: the margin is zero, and no 0/0.
        relative = jnp.where(lengths > 0, margins / jnp.where(lengths > 0, lengths, 1.0), margins)
        return Margins(jnp.min(_margins(output, values, right)), jnp.min(relative))

    return _over_blocks(of_one, (outputs, target), _rows(values))


def margins_in_full(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, "facts outputs"]:
    """All margins (u_f*(x) − u_y)·F(e_x); infinite at y = f*(x). For N·M that fits in memory."""
    return _over_blocks(
        lambda pair: _margins(pair[0], values, pair[1]), (outputs, target), _rows(values)
    )


def loss_of_each(
    of_one: MarginLoss,
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, " facts"]:
    """A loss of every key's margins, differentiable in the outputs alone.

    The derivative with respect to the outputs is found on the way forward, block by block, with
    two matrix products in all; nothing of size N × M is kept for the way back.
    """
    return _losses(of_one, outputs, values, target)


def _losses_alone(of_one: MarginLoss, outputs: Array, values: Array, target: Array) -> Array:
    return _losses_and_slopes(of_one, outputs, values, target)[0]


def _losses_and_slopes(
    of_one: MarginLoss, outputs: Array, values: Array, target: Array
) -> tuple[Array, Array]:
    def loss_and_slope(output_and_target: tuple[Array, Array]) -> tuple[Array, Array]:
        output, right = output_and_target
        loss, pull = of_one(-_margins(output, values, right))
        # Each gap pulls the output away from u_y and towards u_f*(x).
        away = jnp.matmul(pull, values, precision=_EXACT)
        return loss, away - jnp.sum(pull) * values[right]

    return _over_blocks(loss_and_slope, (outputs, target), _rows(values))


def _backward(of_one: MarginLoss, slopes: Array, cotangent: Array) -> tuple[Array, None, None]:
    return cotangent[:, None] * slopes, None, None


_losses = jax.custom_vjp(_losses_alone, nondiff_argnums=(0,))
_losses.defvjp(_losses_and_slopes, _backward)


def cross_entropy_of_one(
    gaps: Float[Array, " outputs"],
) -> tuple[Float[Array, ""], Float[Array, " outputs"]]:
    """−log softmax(scores) at the right answer, log(1 + Σ exp(gaps)), in nats."""
    largest = jnp.maximum(0.0, jnp.max(gaps))
    weights = jnp.exp(gaps - largest)
    total = jnp.exp(-largest) + jnp.sum(weights)
    return largest + jnp.log(total), weights / total


def _scores(output: Float[Array, " dim"], values: Float[Array, "outputs dim"]) -> Array:
    return jnp.matmul(output, values.T, precision=_EXACT)


def _margins(output: Array, values: Array, right: Array) -> Array:
    scores = _scores(output, values)
    others = jnp.arange(values.shape[0], dtype=right.dtype) != right
    return jnp.where(others, scores[right] - scores, jnp.inf)


def _largest(array: Array) -> Array:
    """The largest magnitude, or 1 where all is zero."""
    largest = jnp.max(jnp.abs(array))
    return jnp.where(largest > 0, largest, 1.0)


def _rows(values: Float[Array, "outputs dim"]) -> int:
    """Keys in a block, so that a block of scores has at most 2²⁰ entries."""
    return max(1, _BLOCK_ENTRIES // values.shape[0])


def _over_blocks(of_one: Callable[[Any], Any], rows: Any, block: int) -> Any:
    """`of_one` for every row, so many at once."""
    if jax.tree.leaves(rows)[0].shape[0] <= block:
        return jax.vmap(of_one)(rows)  # inside a loop XLA would not share work among cores
    return jax.lax.map(of_one, rows, batch_size=block)
