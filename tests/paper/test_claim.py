"""Checks and what becomes of them: verdicts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.power_law import PowerLaw, fit_power_law
from factmem.paper import Finding, Verdict
from factmem.paper.claim import between, close, exponent, fitted, fitted_brackets


@pytest.mark.parametrize(
    ("measured", "least", "most", "holds", "wanted"),
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
def test_numbers_between_others(measured, least, most, holds, wanted):
    check = between("it", measured, least, most)
    assert (check.holds, check.expected) == (holds, wanted)


@given(st.floats(-10, 10).filter(lambda x: abs(x) > 0.1), st.floats(-0.5, 0.5))
def test_numbers_close_to_others(value, away):
    check = close("it", value * (1 + away), value, 0.2)
    assert check.deviation == pytest.approx(abs(away), abs=1e-9)
    assert check.holds == (check.deviation <= 0.2)


def test_a_number_that_is_none_is_close_to_nothing():
    assert not close("it", math.nan, 1.0, 0.5).holds


def test_exponents():
    law = PowerLaw(1.0, 0.8, 1.2, 3.0)
    assert exponent("it", law, 1.1, 2.0).holds
    assert not exponent("it", law, 1.3, 2.0).holds
    for half in (0.51, math.inf):
        assert not exponent("it", PowerLaw(1.5, 1.5 - half, 1.5 + half, 1.0), 1, 2).holds
    assert "0.800 to 1.200" in exponent("it", law, 1, 2).what


def test_laws_of_what_stores_nothing():
    assert fitted([1.0, 2.0], [2.0, 4.0]).exponent == pytest.approx(1)
    for missing in (None, 0.0, math.nan):
        law = fitted([1.0, 2.0, 3.0], [2.0, missing, 4.0])
        assert not exponent("it", law, -9.0, 9.0).holds


def test_laws_of_brackets():
    law = fitted_brackets([1.0, 2.0, 2.0], [(1.0, 1.21), (2.0, 2.42), (2.0, 2.42)])
    assert law.exponent == pytest.approx(1)
    assert law.factor == pytest.approx(1.1)
    assert law.half_width == pytest.approx(
        fit_power_law([1, 2, 2], [1, 2, 2], [1.21] * 3).half_width
    )
    assert law.half_width > 0.1
    for missing in (None, (0.0, 1.0)):
        law = fitted_brackets([1.0, 2.0, 3.0], [(1.0, 1.1), missing, (3.0, 3.1)])
        assert not exponent("it", law, -9.0, 9.0).holds


GOOD = between("good", 1.0, 0.0)
BAD = between("bad", -1.0, 0.0)


def test_verdicts():
    assert Finding.of([GOOD]).verdict is Verdict.HOLDS
    assert Finding.of([GOOD, BAD]).verdict is Verdict.FAILS
    near = Finding.of([GOOD, close("a", 1.02, 1.0, 0.1), close("b", 0.95, 1.0, 0.1)])
    assert near.verdict is Verdict.WITHIN
    assert near.within == pytest.approx(0.05)
    assert Finding.of([close("a", 1.5, 1.0, 0.1)]).verdict is Verdict.FAILS
    assert Finding.of([close("exact", 1 + 1e-9, 1.0, 0.1)]).verdict is Verdict.HOLDS


def test_a_verdict_rests_on_something():
    with pytest.raises(AssertionError):
        Finding.of([])
