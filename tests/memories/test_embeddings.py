"""Random vectors have the moments that the theorems use."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from factmem._core.errors import FactmemError
from factmem.memories.embeddings import gaussian, orthonormal, overlaps, sphere


def test_sphere_vectors_have_length_1_and_no_preferred_direction():
    vectors = np.asarray(sphere(jr.key(0), 20_000, 3))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    # On the 2-sphere every coordinate is uniform on [−1, 1] (Archimedes).
    for coordinate in vectors.T:
        assert kstest(coordinate, "uniform", args=(-1, 2)).pvalue > 1e-4


def test_gaussian_entries_have_variance_one_over_d():
    vectors = np.asarray(gaussian(jr.key(0), 2_000, 40))
    assert kstest(vectors.ravel() * 40**0.5, "norm").pvalue > 1e-4


@given(seed=st.integers(0, 2**31 - 1), count=st.sampled_from([1, 5, 8]))
def test_orthonormal_vectors_are_orthonormal(seed, count):
    vectors = np.asarray(orthonormal(jr.key(seed), count, 8))
    assert np.abs(vectors @ vectors.T - np.eye(count)).max() < 1e-5


def test_orthonormal_vectors_have_no_preferred_direction():
    # Without the sign correction the first coordinate would have a fixed sign.
    firsts = np.array([orthonormal(jr.key(seed), 2, 2)[0, 0] for seed in range(200)])
    assert 60 < (firsts > 0).sum() < 140


def test_more_orthonormal_vectors_than_dimensions_are_impossible():
    with pytest.raises(FactmemError, match="9 vectors cannot be orthonormal in 8 dimensions"):
        orthonormal(jr.key(0), 9, 8)


@pytest.mark.parametrize("draw", [sphere, gaussian, orthonormal])
def test_nothing_cannot_be_embedded(draw):
    with pytest.raises(FactmemError, match="at least one"):
        draw(jr.key(0), 0, 4)


@pytest.mark.parametrize("count", [2, 7, 300])
def test_overlaps_agree_with_the_gram_matrix(count):
    vectors = gaussian(jr.key(count), count, 5)
    gram = np.asarray(vectors, np.float64) @ np.asarray(vectors, np.float64).T
    off_diagonal = gram[~np.eye(count, dtype=bool)]
    found = overlaps(vectors)
    assert float(found.coherence) == pytest.approx(np.abs(off_diagonal).max(), rel=1e-5)
    assert float(found.mean_square) == pytest.approx((off_diagonal**2).mean(), rel=1e-5)


def test_sphere_vectors_overlap_by_one_over_d_on_average():
    found = overlaps(sphere(jr.key(0), 1_000, 50))
    assert float(found.mean_square) == pytest.approx(1 / 50, rel=0.02)
    assert float(found.coherence) > 0.5


def test_orthonormal_vectors_do_not_overlap():
    found = overlaps(orthonormal(jr.key(0), 20, 20))
    assert float(found.coherence) < 1e-5


def test_one_vector_has_no_overlaps():
    with pytest.raises(FactmemError, match="at least two"):
        overlaps(jnp.ones((1, 4)))
