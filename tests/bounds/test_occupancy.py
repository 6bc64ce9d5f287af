"""The occupancy problem, against recursions over the draws and integer counts."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem.bounds import log_probability_all_seen, unseen_distribution
from factmem.bounds.occupancy import unseen_mean, unseen_variance


def recursive_distribution(draws, bins):
    """Compute the probabilities of 0 … bins unseen bins, draw by draw."""
    seen = np.zeros(bins + 1)
    seen[0] = 1
    new = 1 - np.arange(bins + 1) / bins
    for _ in range(draws):
        seen = seen * (1 - new) + np.concatenate([[0], (seen * new)[:-1]])
    return seen[::-1]


@given(st.integers(1, 300), st.integers(1, 80))
def test_distribution_matches_recursion(draws, bins):
    first, probabilities = unseen_distribution(draws, bins)
    padded = np.zeros(bins + 1)
    padded[first : first + len(probabilities)] = probabilities
    assert padded == pytest.approx(recursive_distribution(draws, bins), abs=1e-13)


@cache
def surjections(draws, bins):
    """Count the surjections from n draws to k bins, by recursion over the last draw."""
    if bins == 0 or draws == 0:
        return int(bins == draws == 0)
    return bins * (surjections(draws - 1, bins) + surjections(draws - 1, bins - 1))


@given(st.integers(1, 150), st.integers(1, 150))
def test_probability_to_see_all_counts_surjections(draws, bins):
    log_probability = log_probability_all_seen(draws, np.array([float(bins)]))[0]
    count = surjections(draws, bins)
    if count == 0:
        assert log_probability == -np.inf
    else:
        assert log_probability == pytest.approx(math.log(count) - draws * math.log(bins), abs=1e-10)


@pytest.mark.parametrize(("draws", "bins"), [(10**6, 10**5), (10**5, 10**5), (3000, 10**4)])
def test_mean_and_variance_of_many_kinds(draws, bins):
    first, probabilities = unseen_distribution(draws, bins)
    values = first + np.arange(len(probabilities))
    mean = float(values @ probabilities)
    assert mean == pytest.approx(unseen_mean(draws, bins), rel=1e-8)
    variance = float((values - mean) ** 2 @ probabilities)
    assert variance == pytest.approx(unseen_variance(draws, bins), rel=1e-3)


@pytest.mark.parametrize("bins", [10**3, 10**4, 10**6, 3 * 10**7, 10**8, 10**9])
def test_one_more_draw_than_kinds(bins):
    # C(k+1, 2) ways to choose the pair that is seen twice, with probability k!/k^(k+1) each
    ways = math.lgamma(bins + 1) - (bins + 1) * math.log(bins)
    exact = ways + math.log(bins) + math.log(bins + 1) - math.log(2)
    log_probability = log_probability_all_seen(bins + 1, np.array([float(bins)]))[0]
    assert log_probability == pytest.approx(exact, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(("draws", "bins"), [(10**7, 10**13), (10**8, 10**15)])
def test_few_draws_of_very_many_kinds_rarely_coincide(draws, bins):
    first, probabilities = unseen_distribution(draws, bins)
    twice = first + np.arange(len(probabilities)) - (bins - draws)
    pairs = draws * (draws - 1) / 2 / bins
    assert twice @ probabilities == pytest.approx(pairs, rel=1e-3)
    assert (twice - pairs) ** 2 @ probabilities == pytest.approx(pairs, rel=1e-2)


@pytest.mark.parametrize("draws", [9_999, 10_000, 20_000])
def test_as_many_draws_as_kinds(draws):
    exact = math.lgamma(draws + 1) - draws * math.log(draws)
    assert log_probability_all_seen(draws, np.array([float(draws)]))[0] == pytest.approx(
        exact, rel=1e-12
    )


def test_very_many_draws_see_all_kinds():
    first, probabilities = unseen_distribution(10**12, 10**6)
    assert first == 0
    assert probabilities.tolist() == [1.0]
