"""Decoding by argmax over y of ⟨u_y, F⟩, with margins and losses.

All functions take the outputs F(e_x) of N keys and work on blocks of keys, so that only a bounded
part of the N × M scores is in memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from factmem.memories.decodable import decodable

__all__ = [
    "MarginLoss",
    "Margins",
    "all_margins",
    "cross_entropy_from_gaps",
    "decodable",
    "decode",
    "per_key_losses",
    "recalled",
    "smallest_margins",
]

_BLOCK_ENTRIES = 2**20
_HIGHEST = jax.lax.Precision.HIGHEST

MarginLoss = Callable[[Float[Array, " outputs"]], tuple[Float[Array, ""], Float[Array, " outputs"]]]
"""A loss of one key as a function of its gaps ⟨u_y − u_f*(x), F(e_x)⟩ = −γ_xy, −∞ at y = f*(x).

Returns the loss and its derivative with respect to every gap, zero at y = f*(x).
"""


class Margins(NamedTuple):
    """The smallest margins of every key; a key is recalled if its margin is positive."""

    margin: Float[Array, " facts"]
    """min over y ≠ f*(x) of (u_f*(x) − u_y)·F(e_x); infinite if there is only one value."""
    relative: Float[Array, " facts"]
    """The same with each term divided by ‖F(e_x)‖ ‖u_f*(x) − u_y‖: a scale-free cosine."""


def decode(
    outputs: Float[Array, "facts dim"], values: Float[Array, "outputs dim"]
) -> Int[Array, " facts"]:
    """Return argmax over y of ⟨u_y, F⟩ for every F; the first y of equal scores, NaN first."""
    return _map_blocks(
        lambda output: jnp.argmax(_scores(output, values)), outputs, _block_rows(values)
    )


def recalled(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Bool[Array, " facts"]:
    """Return whether the answer of every key has the largest score; ties count as errors."""
    return _map_blocks(
        lambda pair: jnp.all(_margins(pair[0], values, pair[1]) > 0),
        (outputs, target),
        _block_rows(values),
    )


def smallest_margins(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Margins:
    """Compute the smallest margin and relative margin of every key over all wrong answers.

    A tie has margin zero and counts as not recalled. NaN scores give NaN.
    """
    scaled_values = values / _max_abs(values)

    def margins_of_key(output_and_target: tuple[Array, Array]) -> Margins:
        output, right = output_and_target
        # Relative margins are scale-free; at this scale nothing overflows or underflows.
        scaled_output = output / _max_abs(output)
        distances = jnp.linalg.norm(scaled_values[right][None, :] - scaled_values, axis=1)
        lengths = distances * jnp.linalg.norm(scaled_output)
        margins = _margins(scaled_output, scaled_values, right)
        # Equal vectors have margin zero, not 0/0.
        relative = jnp.where(lengths > 0, margins / jnp.where(lengths > 0, lengths, 1.0), margins)
        return Margins(jnp.min(_margins(output, values, right)), jnp.min(relative))

    return _map_blocks(margins_of_key, (outputs, target), _block_rows(values))


def all_margins(
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, "facts outputs"]:
    """Compute all N × M margins (u_f*(x) − u_y)·F(e_x), infinite at y = f*(x)."""
    return _map_blocks(
        lambda pair: _margins(pair[0], values, pair[1]), (outputs, target), _block_rows(values)
    )


def per_key_losses(
    loss: MarginLoss,
    outputs: Float[Array, "facts dim"],
    values: Float[Array, "outputs dim"],
    target: Int[Array, " facts"],
) -> Float[Array, " facts"]:
    """Compute a loss of the margins of every key, differentiable with respect to the outputs only.

    The forward pass also computes the gradient, block by block, with two matrix products in all.
    Nothing of size N × M is stored for the backward pass.
    """
    return _losses(loss, outputs, values, target)


def _losses_only(loss: MarginLoss, outputs: Array, values: Array, target: Array) -> Array:
    return _losses_and_gradients(loss, outputs, values, target)[0]


def _losses_and_gradients(
    loss: MarginLoss, outputs: Array, values: Array, target: Array
) -> tuple[Array, Array]:
    def loss_and_gradient(output_and_target: tuple[Array, Array]) -> tuple[Array, Array]:
        output, right = output_and_target
        value, gap_gradient = loss(-_margins(output, values, right))
        # The derivative of a gap with respect to the output is u_y − u_f*(x).
        weighted = jnp.matmul(gap_gradient, values, precision=_HIGHEST)
        return value, weighted - jnp.sum(gap_gradient) * values[right]

    return _map_blocks(loss_and_gradient, (outputs, target), _block_rows(values))


def _backward(loss: MarginLoss, gradients: Array, cotangent: Array) -> tuple[Array, None, None]:
    return cotangent[:, None] * gradients, None, None


_losses = jax.custom_vjp(_losses_only, nondiff_argnums=(0,))
_losses.defvjp(_losses_and_gradients, _backward)


def cross_entropy_from_gaps(
    gaps: Float[Array, " outputs"],
) -> tuple[Float[Array, ""], Float[Array, " outputs"]]:
    """Compute −log softmax(scores) at the right answer, log(1 + Σ exp(gaps)), in nats."""
    largest = jnp.maximum(0.0, jnp.max(gaps))
    weights = jnp.exp(gaps - largest)
    total = jnp.exp(-largest) + jnp.sum(weights)
    return largest + jnp.log(total), weights / total


def _scores(output: Float[Array, " dim"], values: Float[Array, "outputs dim"]) -> Array:
    return jnp.matmul(output, values.T, precision=_HIGHEST)


def _margins(output: Array, values: Array, right: Array) -> Array:
    scores = _scores(output, values)
    others = jnp.arange(values.shape[0], dtype=right.dtype) != right
    return jnp.where(others, scores[right] - scores, jnp.inf)


def _max_abs(array: Array) -> Array:
    """Return the largest magnitude, or 1 if all entries are zero."""
    largest = jnp.max(jnp.abs(array))
    return jnp.where(largest > 0, largest, 1.0)


def _block_rows(values: Float[Array, "outputs dim"]) -> int:
    """Return the number of keys per block such that a block has at most 2²⁰ scores."""
    return max(1, _BLOCK_ENTRIES // values.shape[0])


def _map_blocks(function: Callable[[Any], Any], rows: Any, block: int) -> Any:
    """Apply a function to every row, `block` rows at a time."""
    if jax.tree.leaves(rows)[0].shape[0] <= block:
        return jax.vmap(function)(rows)  # inside a loop XLA uses only one core
    return jax.lax.map(function, rows, batch_size=block)
