"""How many things are left unseen: against one draw after another, and whole numbers."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem.bounds import log_all_seen, unseen_chances
from factmem.bounds.occupancy import unseen_mean, unseen_variance


def draw_by_draw(draws, kinds):
    """Chances of 0 … kinds things unseen, one draw after another."""
    seen = np.zeros(kinds + 1)
    seen[0] = 1
    new = 1 - np.arange(kinds + 1) / kinds
    for _ in range(draws):
        seen = seen * (1 - new) + np.concatenate([[0], (seen * new)[:-1]])
    return seen[::-1]


@given(st.integers(1, 300), st.integers(1, 80))
def test_chances_are_those_of_one_draw_after_another(draws, kinds):
    first, chances = unseen_chances(draws, kinds)
    whole = np.zeros(kinds + 1)
    whole[first : first + len(chances)] = chances
    assert whole == pytest.approx(draw_by_draw(draws, kinds), abs=1e-13)


@cache
def surjections(draws, kinds):
    """k^n less those that miss some: by the last draw, in whole numbers."""
    if kinds == 0 or draws == 0:
        return int(kinds == draws == 0)
    return kinds * (surjections(draws - 1, kinds) + surjections(draws - 1, kinds - 1))


@given(st.integers(1, 150), st.integers(1, 150))
def test_the_chance_to_see_all_is_a_count_of_surjections(draws, kinds):
    found = log_all_seen(draws, np.array([float(kinds)]))[0]
    count = surjections(draws, kinds)
    if count == 0:
        assert found == -np.inf
    else:
        assert found == pytest.approx(math.log(count) - draws * math.log(kinds), abs=1e-10)


@pytest.mark.parametrize(("draws", "kinds"), [(10**6, 10**5), (10**5, 10**5), (3000, 10**4)])
def test_mean_and_variance_of_many(draws, kinds):
    first, chances = unseen_chances(draws, kinds)
    values = first + np.arange(len(chances))
    mean = float(values @ chances)
    assert mean == pytest.approx(unseen_mean(draws, kinds), rel=1e-8)
    variance = float((values - mean) ** 2 @ chances)
    assert variance == pytest.approx(unseen_variance(draws, kinds), rel=1e-3)


@pytest.mark.parametrize("kinds", [10**3, 10**4, 10**6, 3 * 10**7, 10**8, 10**9])
def test_one_draw_more_than_things(kinds):
    # k!/k^(k+1) ways to choose the pair that is seen twice: C(k+1, 2)
    ways = math.lgamma(kinds + 1) - (kinds + 1) * math.log(kinds)
    exact = ways + math.log(kinds) + math.log(kinds + 1) - math.log(2)
    found = log_all_seen(kinds + 1, np.array([float(kinds)]))[0]
    assert found == pytest.approx(exact, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(("draws", "kinds"), [(10**7, 10**13), (10**8, 10**15)])
def test_few_draws_of_very_many_things_hardly_meet(draws, kinds):
    first, chances = unseen_chances(draws, kinds)
    twice = first + np.arange(len(chances)) - (kinds - draws)
    pairs = draws * (draws - 1) / 2 / kinds
    assert twice @ chances == pytest.approx(pairs, rel=1e-3)
    assert (twice - pairs) ** 2 @ chances == pytest.approx(pairs, rel=1e-2)


@pytest.mark.parametrize("draws", [9_999, 10_000, 20_000])
def test_as_many_draws_as_things(draws):
    exact = math.lgamma(draws + 1) - draws * math.log(draws)
    assert log_all_seen(draws, np.array([float(draws)]))[0] == pytest.approx(exact, rel=1e-12)


def test_very_many_draws_see_all():
    first, chances = unseen_chances(10**12, 10**6)
    assert first == 0
    assert chances.tolist() == [1.0]
