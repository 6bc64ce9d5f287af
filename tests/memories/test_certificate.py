"""Proofs are checked against linear programming and against cases that can be done by hand."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from factmem.memories import (
    Associations,
    Verdict,
    certificate,
    infeasibility,
    maximal,
    proved_margin,
)


def largest_margin(pairs):
    """max over |W_ij| ≤ 1 of the smallest margin, by linear programming (HiGHS)."""
    keys, values = np.asarray(pairs.keys, float), np.asarray(pairs.values, float)
    rows = [
        np.append(-np.outer(values[f] - values[y], keys[x]).ravel(), 1.0)
        for x, f in enumerate(np.asarray(pairs.target))
        for y in range(len(values))
        if y != f
    ]
    unknowns = keys.shape[1] ** 2
    found = linprog(
        np.append(np.zeros(unknowns), -1.0),
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        bounds=[(-1, 1)] * unknowns + [(None, None)],
    )
    assert found.success
    return -found.fun


# Around the limit of each dimension, with more values than dimensions, and with fewer.
SHAPES = [
    (2, 4, 4),
    (2, 6, 6),
    (3, 6, 6),
    (3, 12, 12),
    (4, 10, 2),
    (4, 12, 2),
    (4, 14, 3),
    (4, 9, 9),
]


@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES))
def test_verdicts_are_those_of_linear_programming(seed, shape):
    dim, facts, outputs = shape
    pairs = Associations.draw(jr.key(seed), facts, dim, outputs)
    best, margin = maximal(pairs), largest_margin(pairs)
    if margin > 1e-6:
        assert best.verdict is not Verdict.INFEASIBLE
    if margin < 1e-9:
        assert best.verdict is not Verdict.FEASIBLE
    if best.verdict is Verdict.UNDECIDED:
        # Only where the margin is a hair's breadth, or where the positive slacks are few.
        assert best.proved_margin <= 0
        assert not best.infeasibility.proved


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] > 2])
def test_few_verdicts_stay_open(shape):
    """In two dimensions fewer than d² slacks may contradict each other, which proves nothing."""
    dim, facts, outputs = shape
    verdicts = [
        maximal(Associations.draw(jr.key(seed), facts, dim, outputs)).verdict for seed in range(8)
    ]
    assert verdicts.count(Verdict.UNDECIDED) <= 2


def two_keys_that_contradict():
    """e and −e with the same two answers each: Σ λ δ eᵀ = 0 for λ = ½, ½."""
    key, values = jnp.array([[1.0, 0.0], [-1.0, 0.0]]), jnp.array([[0.0, 1.0], [0.0, -1.0]])
    return Associations(key, values, jnp.array([0, 0]))


def test_a_contradiction_by_hand():
    pairs = two_keys_that_contradict()
    assert largest_margin(pairs) == pytest.approx(0, abs=1e-9)
    proof = infeasibility(np.zeros((2, 2)), pairs)
    assert proof.residual < 1e-14
    # A_J holds δ' ⊗ e = (−1)·(±1, 0): rank 1 of the 2 dimensions of e, so no threshold.
    assert proof.threshold == 0
    assert not proof.proved


def test_residual_and_threshold_by_hand():
    """Three keys at 120° that all want the first of two values: W = 0 has slack 1 everywhere."""
    angles = 2 * np.pi * np.arange(3) / 3
    keys = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    pairs = Associations(
        jnp.asarray(keys, jnp.float32), jnp.array([[0.0, 1.0], [0.0, -1.0]]), jnp.zeros(3, int)
    )
    proof = infeasibility(np.zeros((2, 2)), pairs)
    # In the basis u_1 − u_0 the vectors are −e_x, and A Aᵀ = Σ e eᵀ = (3/2) I; λ = 1/3. J holds
    # slacks of at least an eighth of their mean, and σ is proved to 90 % of its square.
    assert proof.threshold == pytest.approx(np.sqrt(0.9 * 1.5) / 3 / 8, rel=1e-6)
    assert proof.residual < 1e-7  # the rounding of the keys to float32
    assert proof.proved
    assert maximal(pairs).verdict is Verdict.INFEASIBLE


def test_any_matrix_may_be_asked_and_a_bad_one_proves_nothing():
    pairs = Associations.draw(jr.key(0), 30, 4)
    assert maximal(pairs).verdict is Verdict.INFEASIBLE
    far = infeasibility(np.random.default_rng(0).normal(size=(4, 4)), pairs)
    assert not far.proved
    assert far.residual > far.threshold


def test_what_is_stored_is_never_proved_impossible():
    pairs = Associations.draw(jr.key(0), 8, 8)
    for seed in range(20):
        matrix = np.random.default_rng(seed).normal(size=(8, 8))
        assert not infeasibility(matrix, pairs).proved


def test_the_residual_is_that_of_the_definition():
    pairs = Associations.draw(jr.key(3), 12, 5, outputs=9, target="blocks")
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    keys, values = np.asarray(pairs.keys, float), np.asarray(pairs.values, float)
    total, weights = np.zeros((5, 5)), 0.0
    vectors = []
    for x, f in enumerate(np.asarray(pairs.target)):
        for y in range(9):
            difference = values[f] - values[y]
            slack = max(0.0, 1 - difference @ matrix @ keys[x])
            if y != f and slack > 0:
                total += slack * np.outer(difference, keys[x])
                weights += slack
                vectors.append((slack, np.outer(difference, keys[x]).ravel()))
    found = infeasibility(matrix, pairs)
    assert found.residual == pytest.approx(np.linalg.norm(total) / weights, rel=1e-9)
    thresholds = []
    for share in (1 / 8, 1 / 2, 1 / 32):
        least = share * weights / len(vectors)
        chosen = np.array([vector for slack, vector in vectors if slack >= least]).T
        sigma = np.linalg.svd(chosen, compute_uv=False)[-1]
        thresholds.append(sigma * least / weights)
    # Proved from below, and not far below.
    assert 0.9 * max(thresholds) < found.threshold <= max(thresholds)


def test_proved_margins_are_lower_bounds_and_nearly_exact():
    pairs = Associations.draw(jr.key(3), 12, 5)
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    keys, values = np.asarray(pairs.keys, float), np.asarray(pairs.values, float)
    outputs = keys @ matrix.T
    margins = (values[:, None, :] - values[None, :, :]) @ outputs[:, :, None]
    smallest = np.where(np.eye(12, dtype=bool), np.inf, margins[:, :, 0]).min()
    bound = proved_margin(matrix, pairs)
    assert bound < smallest
    assert bound == pytest.approx(smallest, abs=1e-13)


def test_blocks_change_nothing(monkeypatch):
    pairs = Associations.draw(jr.key(0), 40, 4)
    matrix = np.random.default_rng(0).normal(size=(4, 4))
    whole = (*infeasibility(matrix, pairs), proved_margin(matrix, pairs))
    monkeypatch.setattr(certificate, "_BLOCK_ENTRIES", 100)
    assert (*infeasibility(matrix, pairs), proved_margin(matrix, pairs)) == pytest.approx(whole)


def test_a_system_too_large_to_factor_stays_undecided(monkeypatch):
    monkeypatch.setattr(certificate, "_LARGEST_SYSTEM", 15)
    best = maximal(Associations.draw(jr.key(0), 30, 4))
    assert best.verdict is Verdict.UNDECIDED
    assert best.infeasibility.threshold == 0
