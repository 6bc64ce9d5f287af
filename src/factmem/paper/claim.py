"""Claims: statements of the paper, how each is measured, and how the result is judged."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from factmem._core.errors import FactmemError
from factmem._core.power_law import Number, PowerLaw, fit_power_law
from factmem._core.result import Status
from factmem.experiments.measurement import Measurement

__all__ = [
    "Check",
    "Claim",
    "Finding",
    "MeasurementError",
    "Verdict",
    "check_between",
    "check_close",
    "check_exponent",
    "fit_brackets",
    "fit_values",
]

_MAX_HALF_WIDTH = 0.5
"""A wider confidence interval does not support a statement about an exponent."""
_ROUNDING = 1e-6
"""Relative deviations below this are rounding errors."""


class MeasurementError(FactmemError):
    """The measurement does not allow a verdict on the claim."""


class Verdict(Status):
    """The result of checking a claim. The name goes into JSON, the value into tables."""

    HOLDS = "holds"
    HOLDS_WITHIN = "holds within"
    """All checks hold, with a deviation from the claim's own numbers that is reported."""
    FAILS = "fails"
    NOT_CHECKABLE = "not checkable here"
    """A measurement that the verdict needs could not be made."""


@dataclass(frozen=True)
class Check:
    """A measured number and the condition that the claim puts on it.

    Args:
        quantity: what is measured, in words.
        measured: its value.
        expected: the condition, in words.
        holds: whether the condition is met.
        deviation: relative deviation from the claim's own number, if it has one.
    """

    quantity: str
    measured: float
    expected: str
    holds: bool
    deviation: float | None = None


def check_between(
    quantity: str, measured: Number | None, low: Number | None = None, high: Number | None = None
) -> Check:
    """Check that a number lies in a range, open on the sides that are None.

    A missing number (None or NaN) never does.
    """
    measured = math.nan if measured is None else measured
    above = low is None or measured >= low
    below = high is None or measured <= high
    if low is None:
        expected = f"at most {high:.4g}"
    else:
        expected = f"at least {low:.4g}" if high is None else f"from {low:.4g} to {high:.4g}"
    return Check(quantity, float(measured), expected, bool(above and below))


def check_close(quantity: str, measured: Number | None, value: Number, tolerance: float) -> Check:
    """Check that a number equals another up to a relative tolerance, and record the deviation."""
    measured = math.nan if measured is None else measured
    deviation = abs(measured - value) / abs(value)
    expected = f"{value:.4g} ± {100 * tolerance:.3g}%"
    return Check(
        quantity, float(measured), expected, bool(deviation <= tolerance), float(deviation)
    )


def check_exponent(quantity: str, law: PowerLaw, low: Number, high: Number) -> Check:
    """Check that the 95% interval of an exponent is narrow enough and meets a range."""
    description = f"{quantity}, exponent with 95% interval {law.low:.3f} to {law.high:.3f}"
    holds = law.half_width <= _MAX_HALF_WIDTH and law.overlaps(low, high)
    return Check(description, law.exponent, f"interval overlaps {low:.4g} to {high:.4g}", holds)


def fit_values(x: Sequence[Number], y: Sequence[Number | None]) -> PowerLaw:
    """Fit a power law to points; all NaN if a y is missing or not positive (nothing stored)."""
    measured = [math.nan if value is None else value for value in y]
    if not all(value > 0 for value in measured):
        return PowerLaw(math.nan, math.nan, math.nan, math.nan)
    return fit_power_law(x, measured)


def fit_brackets(x: Sequence[Number], brackets: Sequence[tuple[Number, Number] | None]) -> PowerLaw:
    """Fit a power law to the geometric means of brackets, whose widths widen its interval.

    All NaN if a bracket is missing or starts at zero.
    """
    ends = [bracket for bracket in brackets if bracket is not None and bracket[0] > 0]
    if len(ends) < len(brackets):
        return PowerLaw(math.nan, math.nan, math.nan, math.nan)
    middles = [math.sqrt(lower * upper) for lower, upper in ends]
    return fit_power_law(x, middles, [upper / lower for lower, upper in ends])


@dataclass(frozen=True)
class Finding:
    """A verdict and its evidence.

    Args:
        verdict: the verdict.
        checks: the numbers it rests on.
        max_deviation: largest deviation from the claim's own numbers, if it has any.
        note: a remark for readers.
    """

    verdict: Verdict
    checks: tuple[Check, ...]
    max_deviation: float | None = None
    note: str = ""

    @classmethod
    def from_checks(cls, checks: Sequence[Check], note: str = "") -> "Finding":
        """Return FAILS if any check fails, else HOLDS, or HOLDS_WITHIN the largest deviation."""
        assert checks, "a verdict needs at least one check"
        if not all(check.holds for check in checks):
            return cls(Verdict.FAILS, tuple(checks), None, note)
        deviations = [check.deviation for check in checks if check.deviation is not None]
        max_deviation = max(deviations, default=0.0)
        if max_deviation < _ROUNDING:
            return cls(Verdict.HOLDS, tuple(checks), None, note)
        return cls(Verdict.HOLDS_WITHIN, tuple(checks), max_deviation, note)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that can be checked.

    Args:
        id: short name for the command line.
        statement: the claim in one sentence.
        reference: its place in the paper.
        method: how it is checked.
        measurement: what is measured.
        judge: turns the result of the measurement into a finding.
        paper_measurement: a slower measurement with more evidence. It replaces `measurement` at
            paper scale, and whenever the run store has all of its runs.
        refuted: the claim is known to be wrong, so it should fail.
    """

    id: str
    statement: str
    reference: str
    method: str
    measurement: Measurement
    judge: Callable[[Any], Finding]
    paper_measurement: Measurement | None = None
    refuted: bool = False
