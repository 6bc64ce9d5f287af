"""Fitted exponents and their confidence intervals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from factmem._core.errors import FactmemError
from factmem._core.power_law import fit_power_law


@given(st.floats(-3, 3), st.floats(0.01, 100))
def test_recovers_an_exact_power_law(exponent, factor):
    x = [1.0, 2.0, 5.0, 11.0]
    law = fit_power_law(x, [factor * value**exponent for value in x])
    assert law.exponent == pytest.approx(exponent, abs=1e-9)
    assert law.factor == pytest.approx(factor, rel=1e-9)
    assert law.low == pytest.approx(law.high, abs=1e-6)


def test_interval_covers_the_true_exponent_in_95_percent():
    rng = np.random.default_rng(0)
    x = np.geomspace(1, 64, 7)
    noise = np.exp(0.2 * rng.normal(size=(2000, 7)))
    laws = [fit_power_law(x.tolist(), (x**1.5 * factors).tolist()) for factors in noise]
    covered = np.mean([law.low <= 1.5 <= law.high for law in laws])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_interval_matches_least_squares():
    x, y = np.array([1.0, 2, 4, 8, 16]), np.array([5.0, 3.5, 2.9, 1.8, 1.5])
    (slope, intercept), covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    law = fit_power_law(x.tolist(), y.tolist())
    assert law.exponent == pytest.approx(slope)
    assert law.half_width == pytest.approx(t.ppf(0.975, 3) * math.sqrt(covariance[0, 0]))
    assert law.at(x) == pytest.approx(np.exp(intercept) * x**slope)


def test_brackets_of_zero_width_change_nothing():
    x, y = [1.0, 2.0, 2.0, 8.0], [1.0, 2.2, 1.9, 8.1]
    assert fit_power_law(x, y, [1.0] * 4) == fit_power_law(x, y)


def test_brackets_widen_the_interval():
    """Compared with random positions in the brackets, one for all points of an x."""
    x = np.repeat([1536.0, 6144.0, 20000.0], [3, 3, 2])
    widths = np.repeat([1.21, 1.4, 1.1], [3, 3, 2])
    positions = np.random.default_rng(0).uniform(-0.5, 0.5, (20_000, 3))
    logs = np.repeat(positions, [3, 3, 2], axis=1) * np.log(widths)
    centered = np.log(x) - np.log(x).mean()
    deviation = (logs @ centered / (centered @ centered)).std()
    law = fit_power_law(x.tolist(), x.tolist(), widths.tolist())
    assert law.exponent == pytest.approx(1)
    assert law.half_width == pytest.approx(1.96 * deviation, rel=0.02)


def test_scatter_and_brackets_add_in_quadrature():
    x, y, widths = [1.0, 1.0, 4.0, 4.0], [1.0, 1.3, 4.0, 4.4], [1.2] * 4
    scatter = fit_power_law(x, y).half_width
    brackets = fit_power_law(x, x, widths).half_width
    assert fit_power_law(x, y, widths).half_width == pytest.approx(math.hypot(scatter, brackets))


def test_two_points_give_an_infinite_interval():
    law = fit_power_law([1, 2], [1, 4])
    assert (law.exponent, law.low, law.high) == (pytest.approx(2), -math.inf, math.inf)


def test_overlaps():
    x = [1.0, 2.0, 4.0]
    law = fit_power_law(x, [1.0, 2.1, 4.0])
    assert law.overlaps(1, 1)
    assert law.overlaps(law.high, 9)
    assert law.overlaps(-9, law.low)
    assert not law.overlaps(law.high + 0.01, 9)
    assert not law.overlaps(-9, law.low - 0.01)


@pytest.mark.parametrize(
    ("x", "y"), [([1], [1]), ([1, 1], [1, 2]), ([1, 2], [0, 1]), ([1, 2], [1])]
)
def test_rejects_invalid_points(x, y):
    with pytest.raises(FactmemError, match=r"a power law needs"):
        fit_power_law(x, y)
