"""Distributions of random embeddings."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from factmem._core.errors import FactmemError
from factmem.memories.embeddings import gaussian, orthonormal, overlaps, sphere


def test_sphere_is_uniform():
    vectors = np.asarray(sphere(20_000, 3, key=jr.key(0)))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    # Every coordinate on the 2-sphere is uniform on [−1, 1] (Archimedes).
    for coordinate in vectors.T:
        assert kstest(coordinate, "uniform", args=(-1, 2)).pvalue > 1e-4


def test_gaussian_entries_have_variance_one_over_d():
    vectors = np.asarray(gaussian(2_000, 40, key=jr.key(0)))
    assert kstest(vectors.ravel() * 40**0.5, "norm").pvalue > 1e-4


@given(seed=st.integers(0, 2**31 - 1), count=st.sampled_from([1, 5, 8]))
def test_orthonormal_vectors_are_orthonormal(seed, count):
    vectors = np.asarray(orthonormal(count, 8, key=jr.key(seed)))
    assert np.abs(vectors @ vectors.T - np.eye(count)).max() < 1e-5


def test_orthonormal_is_uniform():
    # Without the sign correction the first coordinate would have a fixed sign.
    first_entries = np.array([orthonormal(2, 2, key=jr.key(seed))[0, 0] for seed in range(200)])
    assert 60 < (first_entries > 0).sum() < 140


def test_more_orthonormal_vectors_than_dimensions_are_rejected():
    with pytest.raises(FactmemError, match="9 vectors cannot be orthonormal in 8 dimensions"):
        orthonormal(9, 8, key=jr.key(0))


@pytest.mark.parametrize("draw", [sphere, gaussian, orthonormal])
def test_zero_vectors_are_rejected(draw):
    with pytest.raises(FactmemError, match="must be at least 1"):
        draw(0, 4, key=jr.key(0))


@pytest.mark.parametrize("count", [2, 7, 300])
def test_overlaps_match_the_gram_matrix(count):
    vectors = gaussian(count, 5, key=jr.key(count))
    gram = np.asarray(vectors, np.float64) @ np.asarray(vectors, np.float64).T
    off_diagonal = gram[~np.eye(count, dtype=bool)]
    result = overlaps(vectors)
    assert float(result.coherence) == pytest.approx(np.abs(off_diagonal).max(), rel=1e-5)
    assert float(result.mean_square) == pytest.approx((off_diagonal**2).mean(), rel=1e-5)


def test_mean_square_overlap_on_the_sphere_is_one_over_d():
    result = overlaps(sphere(1_000, 50, key=jr.key(0)))
    assert float(result.mean_square) == pytest.approx(1 / 50, rel=0.02)
    assert float(result.coherence) > 0.5


def test_orthonormal_vectors_have_no_overlap():
    result = overlaps(orthonormal(20, 20, key=jr.key(0)))
    assert float(result.coherence) < 1e-5


def test_overlaps_of_one_vector_are_rejected():
    with pytest.raises(FactmemError, match="at least 2 vectors, got 1"):
        overlaps(jnp.ones((1, 4)))
