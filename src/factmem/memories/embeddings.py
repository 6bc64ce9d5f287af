"""Random embeddings: uniform on the sphere, Gaussian, or orthonormal."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.random import normal

__all__ = ["Overlaps", "gaussian", "orthonormal", "overlaps", "sphere"]

_BLOCK_ROWS = 256


def sphere(count: int, dim: int, *, key: Key[Array, ""]) -> Float[Array, "{count} {dim}"]:
    """Draw independent vectors, uniform on the unit sphere, as in the paper's theorems."""
    vectors = normal(key, _checked_shape(count, dim))
    return vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)


def gaussian(count: int, dim: int, *, key: Key[Array, ""]) -> Float[Array, "{count} {dim}"]:
    """Draw independent vectors with entries N(0, 1/d), as in the authors' experiments."""
    return normal(key, _checked_shape(count, dim)) / jnp.sqrt(1.0 * dim)


def orthonormal(count: int, dim: int, *, key: Key[Array, ""]) -> Float[Array, "{count} {dim}"]:
    """Draw the first rows of a uniformly random rotation, as in section 5 of the paper.

    Raises:
        FactmemError: more vectors than dimensions.
    """
    if count > dim:
        raise FactmemError(
            f"{count} vectors cannot be orthonormal in {dim} dimensions; dim must be at least "
            f"{count}"
        )
    q, r = jnp.linalg.qr(normal(key, _checked_shape(count, dim)).T)
    # QR fixes the signs by convention; without this correction the rotation is not uniform.
    return (q * jnp.sign(jnp.diagonal(r))[None, :]).T


class Overlaps(NamedTuple):
    """Inner products between distinct vectors; cosines for unit vectors."""

    coherence: Float[Array, ""]
    """max |⟨e_i, e_j⟩| over i ≠ j."""
    mean_square: Float[Array, ""]
    """Mean of ⟨e_i, e_j⟩² over i ≠ j: 1/d for independent vectors on the sphere."""


def overlaps(vectors: Float[Array, "count dim"]) -> Overlaps:
    """Compute the largest and the mean square inner product of distinct vectors.

    Works in blocks of rows, so that [count, count] is never in memory at once.

    Raises:
        FactmemError: fewer than two vectors.
    """
    count, _ = vectors.shape
    if count < 2:
        raise FactmemError(f"overlaps need at least 2 vectors, got {count}")

    def of_row(row: Array) -> tuple[Array, Array]:
        products = jnp.matmul(vectors, vectors[row], precision=jax.lax.Precision.HIGHEST)
        others = jnp.where(jnp.arange(count) == row, 0.0, products)
        return jnp.max(jnp.abs(others)), jnp.sum(others**2)

    largest, squares = jax.lax.map(of_row, jnp.arange(count), batch_size=_BLOCK_ROWS)
    return Overlaps(jnp.max(largest), jnp.sum(squares) / (count * (count - 1.0)))


def _checked_shape(count: int, dim: int) -> tuple[int, int]:
    if count < 1 or dim < 1:
        raise FactmemError(f"count and dim must be at least 1, got {count} and {dim}")
    return count, dim
