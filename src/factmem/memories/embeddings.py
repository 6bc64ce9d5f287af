"""Vectors for tokens, keys and values: uniform on the sphere, Gaussian, or orthonormal."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.random import normal

__all__ = ["Overlaps", "gaussian", "orthonormal", "overlaps", "sphere"]

_BLOCK = 256


def sphere(key: Key[Array, ""], count: int, dim: int) -> Float[Array, "{count} {dim}"]:
    """Independent vectors, uniform on the unit sphere: the paper's embeddings in all theorems."""
    vectors = normal(key, _shape(count, dim))
    return vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)


def gaussian(key: Key[Array, ""], count: int, dim: int) -> Float[Array, "{count} {dim}"]:
    """Independent vectors with entries N(0, 1/d), of length about 1: the authors' experiments."""
    return normal(key, _shape(count, dim)) / jnp.sqrt(1.0 * dim)


def orthonormal(key: Key[Array, ""], count: int, dim: int) -> Float[Array, "{count} {dim}"]:
    """The first rows of a uniformly random rotation: the paper's section on dynamics.

    Raises:
        FactmemError: more vectors than dimensions.
    """
    if count > dim:
        raise FactmemError(
            f"{count} vectors cannot be orthonormal in {dim} dimensions; use a dimension of at "
            f"least {count}"
        )
    q, r = jnp.linalg.qr(normal(key, _shape(count, dim)).T)
    # QR alone is not uniform: its signs are fixed by convention, so give them back.
    return (q * jnp.sign(jnp.diagonal(r))[None, :]).T


class Overlaps(NamedTuple):
    """How far vectors are from orthogonal; for unit vectors, inner products are cosines."""

    coherence: Float[Array, ""]
    """max |⟨e_i, e_j⟩| over i ≠ j."""
    mean_square: Float[Array, ""]
    """Mean of ⟨e_i, e_j⟩² over i ≠ j: 1/d for independent vectors on the sphere."""


def overlaps(vectors: Float[Array, "count dim"]) -> Overlaps:
    """Inner products between different vectors, summed up.

    Works in blocks of rows, so that [count, count] is never in memory at once.

    Raises:
        FactmemError: fewer than two vectors.
    """
    count, _ = vectors.shape
    if count < 2:
        raise FactmemError(f"overlaps need at least two vectors, not {count}")

    def of_row(row: Array) -> tuple[Array, Array]:
        products = jnp.matmul(vectors, vectors[row], precision=jax.lax.Precision.HIGHEST)
        others = jnp.where(jnp.arange(count) == row, 0.0, products)
        return jnp.max(jnp.abs(others)), jnp.sum(others**2)

    largest, squares = jax.lax.map(of_row, jnp.arange(count), batch_size=_BLOCK)
    return Overlaps(jnp.max(largest), jnp.sum(squares) / (count * (count - 1.0)))


def _shape(count: int, dim: int) -> tuple[int, int]:
    if count < 1 or dim < 1:
        raise FactmemError(
            f"embeddings need at least one vector and one dimension, not {count} × {dim}"
        )
    return count, dim
