"""Proofs compared with linear programming and with cases solved by hand."""

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
    Feasibility,
    Infeasibility,
    certificate,
    infeasibility,
    optimal_linear_memory,
    proved_margin,
)


def largest_margin(pairs):
    """Compute the maximum over |W_ij| ≤ 1 of the smallest margin by linear programming."""
    keys, values = np.asarray(pairs.keys, float), np.asarray(pairs.values, float)
    rows = [
        np.append(-np.outer(values[f] - values[y], keys[x]).ravel(), 1.0)
        for x, f in enumerate(np.asarray(pairs.target))
        for y in range(len(values))
        if y != f
    ]
    unknowns = keys.shape[1] ** 2
    solution = linprog(
        np.append(np.zeros(unknowns), -1.0),
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        bounds=[(-1, 1)] * unknowns + [(None, None)],
    )
    assert solution.success
    return -solution.fun


# Near the capacity, with more and with fewer values than dimensions.
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
def test_feasibility_matches_linear_programming(seed, shape):
    dim, facts, outputs = shape
    pairs = Associations.draw(facts, dim, outputs, key=jr.key(seed))
    best, margin = optimal_linear_memory(pairs), largest_margin(pairs)
    if margin > 1e-6:
        assert best.feasibility is not Feasibility.INFEASIBLE
    if margin < 1e-9:
        assert best.feasibility is not Feasibility.FEASIBLE


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] > 2])
def test_few_problems_are_undecided(shape):
    """Not in two dimensions, where fewer than d² slacks may be positive, which proves nothing."""
    dim, facts, outputs = shape
    results = [
        optimal_linear_memory(Associations.draw(facts, dim, outputs, key=jr.key(seed))).feasibility
        for seed in range(8)
    ]
    assert results.count(Feasibility.UNDECIDED) <= 2


def contradictory_keys():
    """Return e and −e with the same answer: Σ λ δ eᵀ = 0 for λ = ½, ½."""
    key, values = jnp.array([[1.0, 0.0], [-1.0, 0.0]]), jnp.array([[0.0, 1.0], [0.0, -1.0]])
    return Associations(key, values, jnp.array([0, 0]))


def test_a_rank_deficient_contradiction_is_not_proved():
    pairs = contradictory_keys()
    assert largest_margin(pairs) == pytest.approx(0, abs=1e-9)
    proof = infeasibility(np.zeros((2, 2)), pairs)
    assert proof.residual < 1e-14
    # A_J has the columns δ' ⊗ e = (−1)·(±1, 0) of rank 1 in 2 dimensions, so the threshold is 0.
    assert proof.threshold == 0
    assert not proof.proved


def test_residual_and_threshold_of_three_keys():
    """Three keys at 120° with the same of two values: all slacks of W = 0 are 1."""
    angles = 2 * np.pi * np.arange(3) / 3
    keys = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    pairs = Associations(
        jnp.asarray(keys, jnp.float32), jnp.array([[0.0, 1.0], [0.0, -1.0]]), jnp.zeros(3, int)
    )
    proof = infeasibility(np.zeros((2, 2)), pairs)
    # In the basis u_1 − u_0 the vectors are −e_x, and A Aᵀ = Σ e eᵀ = (3/2) I; λ = 1/3. J has the
    # slacks of at least 1/8 of their mean, and the bound on σ² is 90% of σ².
    assert proof.threshold == pytest.approx(np.sqrt(0.9 * 1.5) / 3 / 8, rel=1e-6)
    assert proof.residual < 1e-7  # keys are rounded to float32
    assert proof.proved
    assert optimal_linear_memory(pairs).feasibility is Feasibility.INFEASIBLE


def test_a_random_matrix_proves_nothing():
    pairs = Associations.draw(30, 4, key=jr.key(0))
    assert optimal_linear_memory(pairs).feasibility is Feasibility.INFEASIBLE
    proof = infeasibility(np.random.default_rng(0).normal(size=(4, 4)), pairs)
    assert not proof.proved
    assert proof.residual > proof.threshold


def test_feasible_problems_are_never_proved_infeasible():
    pairs = Associations.draw(8, 8, key=jr.key(0))
    for seed in range(20):
        matrix = np.random.default_rng(seed).normal(size=(8, 8))
        assert not infeasibility(matrix, pairs).proved


def test_residual_and_threshold_match_their_definitions():
    pairs = Associations.draw(12, 5, outputs=9, target="blocks", key=jr.key(3))
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
    proof = infeasibility(matrix, pairs)
    assert proof.residual == pytest.approx(np.linalg.norm(total) / weights, rel=1e-9)
    thresholds = []
    for fraction in (1 / 8, 1 / 2, 1 / 32):
        cutoff = fraction * weights / len(vectors)
        chosen = np.array([vector for slack, vector in vectors if slack >= cutoff]).T
        sigma = np.linalg.svd(chosen, compute_uv=False)[-1]
        thresholds.append(sigma * cutoff / weights)
    # A lower bound that is nearly tight.
    assert 0.9 * max(thresholds) < proof.threshold <= max(thresholds)


def test_proved_margin_is_a_tight_lower_bound():
    pairs = Associations.draw(12, 5, key=jr.key(3))
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    keys, values = np.asarray(pairs.keys, float), np.asarray(pairs.values, float)
    outputs = keys @ matrix.T
    margins = (values[:, None, :] - values[None, :, :]) @ outputs[:, :, None]
    smallest = np.where(np.eye(12, dtype=bool), np.inf, margins[:, :, 0]).min()
    bound = proved_margin(matrix, pairs)
    assert bound < smallest
    assert bound == pytest.approx(smallest, abs=1e-13)


def test_block_size_does_not_matter(monkeypatch):
    pairs = Associations.draw(40, 4, key=jr.key(0))
    matrix = np.random.default_rng(0).normal(size=(4, 4))
    expected = (*infeasibility(matrix, pairs), proved_margin(matrix, pairs))
    monkeypatch.setattr(certificate, "_BLOCK_ENTRIES", 100)
    assert (*infeasibility(matrix, pairs), proved_margin(matrix, pairs)) == pytest.approx(expected)


def test_large_systems_are_undecided(monkeypatch):
    monkeypatch.setattr(certificate, "_MAX_UNKNOWNS", 15)
    best = optimal_linear_memory(Associations.draw(30, 4, key=jr.key(0)))
    assert best.feasibility is Feasibility.UNDECIDED
    assert best.infeasibility.threshold == 0


def exact_margins(matrix, pairs):
    """Compute all margins in rational arithmetic."""
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
def test_proved_margins_are_below_the_exact_margins(seed, offset):
    random = np.random.default_rng(seed)
    pairs = Associations(
        jnp.asarray(random.normal(size=(3, 3)), jnp.float32),
        jnp.asarray(random.normal(size=(4, 3)), jnp.float32),
        jnp.asarray(random.integers(0, 4, 3)),
    )
    matrix = random.normal(size=(3, 3)) + offset
    assert Fraction(proved_margin(matrix, pairs)) <= min(exact_margins(matrix, pairs))


def test_nan_proves_nothing():
    pairs = Associations.draw(4, 3, key=jr.key(0))
    assert np.isnan(proved_margin(np.full((3, 3), np.nan), pairs))


def feasible_but_nearly_flat():
    """Yield values with a small second coordinate and a large offset, and W that ignores it.

    The problem without that coordinate is infeasible, and W proves it; the actual problem is
    feasible.
    """
    random = np.random.default_rng(1)
    while True:
        keys, first = (np.round(random.normal(size=s) * 1024) / 1024 for s in ((4, 2), 4))
        second = np.round(random.normal(size=4) * 16) / 16
        target = jnp.asarray(random.integers(0, 4, 4))
        actual = optimal_linear_memory(Associations(keys, np.stack([first, second], 1), target))
        flat = optimal_linear_memory(Associations(keys, np.stack([first, 0 * first], 1), target))
        if actual.feasibility is not Feasibility.FEASIBLE or flat.minimum.loss < 1e-3:
            continue
        matrix = flat.minimum.point.copy()
        matrix[1] = 0
        for small, offset in ((2.0**-30, 12345.678), (2.0**-28, 12345.678), (2.0**-30, 1e5 / 3)):
            pairs = Associations(keys, np.stack([first, offset + small * second], 1), target)
            solution = actual.minimum.point.copy()
            solution[1] /= small
            if min(exact_margins(solution, pairs)) > 0:
                yield matrix, pairs


def test_cancellation_proves_nothing(float64):
    """Differences of values have no correct digits, so σ must not be computed from them."""
    for (matrix, pairs), _ in zip(feasible_but_nearly_flat(), range(40), strict=False):
        assert not infeasibility(matrix, pairs).proved


def test_a_single_tiny_slack_proves_nothing(float64):
    keys, values = jnp.array([[1.0]]), jnp.array([[2.0**-53], [-1.0]])
    pairs = Associations(keys, values, jnp.array([0]))
    assert not infeasibility(np.array([[1 - 2.0**-53]]), pairs).proved
    assert proved_margin(np.array([[1.0]]), pairs) > 0


def test_residual_includes_rounding_errors(float64):
    """1 + 2⁻⁶⁰ − 1 is zero in float64 but not exactly."""
    pairs = Associations(
        jnp.array([[1.0], [2.0**-60], [-1.0]]), jnp.array([[1.0], [-1.0]]), jnp.zeros(3, int)
    )
    # In the basis u_1 − u_0 the vectors are −e_x, with λ = 1/3 each.
    assert infeasibility(np.zeros((1, 1)), pairs).residual >= 2.0**-60 / 3


def test_collinear_values_keep_their_coordinates():
    """Their differences have rank 1, so two differences are no basis."""
    line = np.outer([0.0, 1.0, 2.5], [0.5, 0.5, 0.5, 0.5])
    assert certificate._coordinates(line) is line
    spread = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_array_equal(certificate._coordinates(spread), np.eye(3)[:, 1:])


def test_proved_if_the_residual_is_below_the_threshold():
    assert Infeasibility(residual=0.4, threshold=0.5).proved
    assert not Infeasibility(residual=0.5, threshold=0.5).proved
    assert not Infeasibility(residual=1.0, threshold=0.5).proved


@pytest.mark.parametrize("size", [1e-18, 1e18])
def test_feasibility_is_scale_free(size):
    for facts in (8, 60):
        pairs = Associations.draw(facts, 8, key=jr.key(0))
        scaled = Associations(pairs.keys * size, pairs.values, pairs.target)
        best = optimal_linear_memory(scaled)
        expected = optimal_linear_memory(pairs).feasibility
        assert best.feasibility is expected is not Feasibility.UNDECIDED
        score = best.model.score(scaled)
        assert (score.accuracy == 1) is (facts == 8)
        assert score.min_margin == pytest.approx(best.proved_margin, rel=1e-2)
