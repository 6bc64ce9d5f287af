"""Checks, fits and verdicts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.power_law import PowerLaw, fit_power_law
from factmem.paper import Finding, Verdict
from factmem.paper.claim import check_between, check_close, check_exponent, fit_brackets, fit_values


@pytest.mark.parametrize(
    ("measured", "low", "high", "holds", "expected"),
    [
        (1.0, 1.0, None, True, "at least 1"),
        (0.99, 1.0, None, False, "at least 1"),
        (1.0, None, 1.0, True, "at most 1"),
        (1.01, None, 1.0, False, "at most 1"),
        (0.5, 0.0, 1.0, True, "from 0 to 1"),
        (1.5, 0.0, 1.0, False, "from 0 to 1"),
        (math.nan, None, 1.0, False, "at most 1"),
        (math.nan, 1.0, None, False, "at least 1"),
    ],
)
def test_between_checks_a_range(measured, low, high, holds, expected):
    check = check_between("it", measured, low, high)
    assert (check.holds, check.expected) == (holds, expected)


@given(st.floats(-10, 10).filter(lambda x: abs(x) > 0.1), st.floats(-0.5, 0.5))
def test_close_checks_the_relative_deviation(value, deviation):
    check = check_close("it", value * (1 + deviation), value, 0.2)
    assert check.deviation == pytest.approx(abs(deviation), abs=1e-9)
    assert check.holds == (check.deviation <= 0.2)


def test_nan_is_not_close_to_a_number():
    assert not check_close("it", math.nan, 1.0, 0.5).holds


def test_exponent_needs_a_narrow_interval_that_meets_the_range():
    law = PowerLaw(1.0, 0.8, 1.2, 3.0)
    assert check_exponent("it", law, 1.1, 2.0).holds
    assert not check_exponent("it", law, 1.3, 2.0).holds
    for half_width in (0.51, math.inf):
        wide = PowerLaw(1.5, 1.5 - half_width, 1.5 + half_width, 1.0)
        assert not check_exponent("it", wide, 1, 2).holds
    assert "0.800 to 1.200" in check_exponent("it", law, 1, 2).quantity


def test_fit_of_a_missing_or_zero_value_has_no_exponent():
    assert fit_values([1.0, 2.0], [2.0, 4.0]).exponent == pytest.approx(1)
    for missing in (None, 0.0, math.nan):
        law = fit_values([1.0, 2.0, 3.0], [2.0, missing, 4.0])
        assert not check_exponent("it", law, -9.0, 9.0).holds


def test_fit_of_brackets_uses_their_middles_and_widths():
    law = fit_brackets([1.0, 2.0, 2.0], [(1.0, 1.21), (2.0, 2.42), (2.0, 2.42)])
    assert law.exponent == pytest.approx(1)
    assert law.factor == pytest.approx(1.1)
    assert law.half_width == pytest.approx(
        fit_power_law([1, 2, 2], [1, 2, 2], [1.21] * 3).half_width
    )
    assert law.half_width > 0.1
    for missing in (None, (0.0, 1.0)):
        law = fit_brackets([1.0, 2.0, 3.0], [(1.0, 1.1), missing, (3.0, 3.1)])
        assert not check_exponent("it", law, -9.0, 9.0).holds


GOOD = check_between("good", 1.0, 0.0)
BAD = check_between("bad", -1.0, 0.0)


def test_verdict_follows_from_the_checks():
    assert Finding.from_checks([GOOD]).verdict is Verdict.HOLDS
    assert Finding.from_checks([GOOD, BAD]).verdict is Verdict.FAILS
    near = Finding.from_checks(
        [GOOD, check_close("a", 1.02, 1.0, 0.1), check_close("b", 0.95, 1.0, 0.1)]
    )
    assert near.verdict is Verdict.HOLDS_WITHIN
    assert near.max_deviation == pytest.approx(0.05)
    assert Finding.from_checks([check_close("a", 1.5, 1.0, 0.1)]).verdict is Verdict.FAILS
    assert Finding.from_checks([check_close("exact", 1 + 1e-9, 1.0, 0.1)]).verdict is Verdict.HOLDS


def test_rejects_a_finding_without_checks():
    with pytest.raises(AssertionError):
        Finding.from_checks([])
