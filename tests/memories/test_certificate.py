"""Proofs are checked against linear programming and against cases that can be done by hand."""

from fractions import Fraction

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from factmem.memories import (
    Associations,
    Infeasibility,
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


def exact_margins(matrix, pairs):
    """All margins in rational arithmetic, without any rounding."""
    keys, values, matrix = (
        [[Fraction(float(number)) for number in row] for row in np.asarray(array, float)]
        for array in (pairs.keys, pairs.values, matrix)
    )
    margins = []
    for key, right in zip(keys, np.asarray(pairs.target).tolist(), strict=True):
        output = [sum(w * e for w, e in zip(row, key, strict=True)) for row in matrix]
        scores = [sum(u * f for u, f in zip(value, output, strict=True)) for value in values]
        margins += [scores[right] - s for y, s in enumerate(scores) if y != right]
    return margins


@given(seed=st.integers(0, 10**6), offset=st.sampled_from([0.0, 1.0, 1e6, 1e12]))
def test_proved_margins_are_below_the_exact_ones_whatever_cancels(seed, offset):
    random = np.random.default_rng(seed)
    pairs = Associations(
        jnp.asarray(random.normal(size=(3, 3)), jnp.float32),
        jnp.asarray(random.normal(size=(4, 3)), jnp.float32),
        jnp.asarray(random.integers(0, 4, 3)),
    )
    matrix = random.normal(size=(3, 3)) + offset
    assert Fraction(proved_margin(matrix, pairs)) <= min(exact_margins(matrix, pairs))


def test_what_is_not_a_number_proves_nothing():
    pairs = Associations.draw(jr.key(0), 4, 3)
    assert np.isnan(proved_margin(np.full((3, 3), np.nan), pairs))


def storable_but_nearly_flat():
    """Values whose second coordinate says little beside a large offset, and W that ignores it.

    The flattened problem has no solution, so that W proves its impossibility; the real one has.
    """
    random = np.random.default_rng(1)
    while True:
        keys, first = (np.round(random.normal(size=s) * 1024) / 1024 for s in ((4, 2), 4))
        second = np.round(random.normal(size=4) * 16) / 16
        target = jnp.asarray(random.integers(0, 4, 4))
        real = maximal(Associations(keys, np.stack([first, second], 1), target))
        flat = maximal(Associations(keys, np.stack([first, 0 * first], 1), target))
        if real.verdict is not Verdict.FEASIBLE or flat.minimum.loss < 1e-3:
            continue
        ignoring = flat.minimum.point.copy()
        ignoring[1] = 0
        for small, offset in ((2.0**-30, 12345.678), (2.0**-28, 12345.678), (2.0**-30, 1e5 / 3)):
            pairs = Associations(keys, np.stack([first, offset + small * second], 1), target)
            solution = real.minimum.point.copy()
            solution[1] /= small
            if min(exact_margins(solution, pairs)) > 0:
                yield ignoring, pairs


def test_cancellation_is_no_proof(float64):
    """Differences of values lose all their digits; σ must not be read off what is left."""
    for (matrix, pairs), _ in zip(storable_but_nearly_flat(), range(40), strict=False):
        assert not infeasibility(matrix, pairs).proved


def test_a_single_tiny_slack_is_no_proof(float64):
    keys, values = jnp.array([[1.0]]), jnp.array([[2.0**-53], [-1.0]])
    pairs = Associations(keys, values, jnp.array([0]))
    assert not infeasibility(np.array([[1 - 2.0**-53]]), pairs).proved
    assert proved_margin(np.array([[1.0]]), pairs) > 0


def test_the_residual_counts_what_rounding_hides(float64):
    """1 + 2⁻⁶⁰ − 1 is zero in float64, and is not zero."""
    pairs = Associations(
        jnp.array([[1.0], [2.0**-60], [-1.0]]), jnp.array([[1.0], [-1.0]]), jnp.zeros(3, int)
    )
    # In the basis u_1 − u_0 the vectors are −e_x, with λ = 1/3 each.
    assert infeasibility(np.zeros((1, 1)), pairs).residual >= 2.0**-60 / 3


def test_values_on_a_line_keep_their_coordinates():
    """Three of them have differences of rank 1, so that no basis of two differences exists."""
    line = np.outer([0.0, 1.0, 2.5], [0.5, 0.5, 0.5, 0.5])
    assert certificate._coordinates(line) is line
    spread = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_array_equal(certificate._coordinates(spread), np.eye(3)[:, 1:])


def test_a_proof_needs_the_residual_below_the_threshold():
    assert Infeasibility(residual=0.4, threshold=0.5).proved
    assert not Infeasibility(residual=0.5, threshold=0.5).proved
    assert not Infeasibility(residual=1.0, threshold=0.5).proved


@pytest.mark.parametrize("size", [1e-18, 1e18])
def test_verdicts_do_not_depend_on_the_length_of_vectors(size):
    for facts in (8, 60):
        pairs = Associations.draw(jr.key(0), facts, 8)
        scaled = Associations(pairs.keys * size, pairs.values, pairs.target)
        best = maximal(scaled)
        assert best.verdict is maximal(pairs).verdict is not Verdict.UNDECIDED
        score = best.memory.score(scaled)
        assert (score.accuracy == 1) is (facts == 8)
        assert score.min_margin == pytest.approx(best.proved_margin, rel=1e-2)
