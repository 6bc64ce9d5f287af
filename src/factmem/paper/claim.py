"""What a claim is: a sentence of the paper, what is measured for it, and how that is judged."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from factmem._core.errors import FactmemError
from factmem._core.power_law import Number, PowerLaw, fit_power_law
from factmem.experiments.measurement import Measurement

__all__ = [
    "Check",
    "Claim",
    "Finding",
    "MeasurementError",
    "Verdict",
    "between",
    "close",
    "exponent",
    "fitted",
    "fitted_brackets",
]

_WIDEST = 0.5
"""Half the width of an interval that says something about an exponent."""
_EXACT = 1e-6
"""A relative deviation below this is rounding."""


class MeasurementError(FactmemError):
    """What was measured says nothing about the claim."""


class Verdict(Enum):
    """What became of a claim."""

    HOLDS = "holds"
    WITHIN = "holds within"
    """What was measured is what the claim says, up to a deviation that is told."""
    FAILS = "fails"
    NOT_CHECKABLE = "not checkable here"
    """A measurement that the verdict needs could not be made."""


@dataclass(frozen=True)
class Check:
    """One number against what the claim says of it.

        Args:
            what: was measured.
            measured: the number.
    expected: what it should be, in words.
            holds: whether it is.
            deviation: how far from the claim's own number it is, relatively, if there is one.
    """

    what: str
    measured: float
    expected: str
    holds: bool
    deviation: float | None = None


def between(
    what: str, measured: Number | None, least: Number | None = None, most: Number | None = None
) -> Check:
    """Whether a number lies between two others, or on one side of one. A missing one never does."""
    measured = math.nan if measured is None else measured
    above = least is None or measured >= least
    below = most is None or measured <= most
    if least is None:
        expected = f"at most {most:.4g}"
    else:
        expected = f"at least {least:.4g}" if most is None else f"from {least:.4g} to {most:.4g}"
    return Check(what, float(measured), expected, bool(above and below))


def close(what: str, measured: Number | None, value: Number, tolerance: float) -> Check:
    """Whether a number is another one, up to a relative tolerance; how far it is counts too."""
    measured = math.nan if measured is None else measured
    deviation = abs(measured - value) / abs(value)
    expected = f"{value:.4g} up to {100 * tolerance:.3g} %"
    return Check(what, float(measured), expected, bool(deviation <= tolerance), float(deviation))


def fitted(x: Sequence[Number], y: Sequence[Number | None]) -> PowerLaw:
    """The power law through points; one without an exponent where a point is missing or not above
    zero, as it is when something stores nothing."""
    measured = [math.nan if each is None else each for each in y]
    if not all(each > 0 for each in measured):
        return PowerLaw(math.nan, math.nan, math.nan, math.nan)
    return fit_power_law(x, measured)


def fitted_brackets(
    x: Sequence[Number], brackets: Sequence[tuple[Number, Number] | None]
) -> PowerLaw:
    """The power law through the middles of brackets, whose widths count in its interval; one
    without an exponent where an end is missing."""
    ends = [bracket for bracket in brackets if bracket is not None and bracket[0] > 0]
    if len(ends) < len(brackets):
        return PowerLaw(math.nan, math.nan, math.nan, math.nan)
    middles = [math.sqrt(lower * upper) for lower, upper in ends]
    return fit_power_law(x, middles, [upper / lower for lower, upper in ends])


def exponent(what: str, law: PowerLaw, low: Number, high: Number) -> Check:
    """Whether the 95 % interval of an exponent meets a range; a wide one says nothing."""
    told = f"{what}, exponent with 95 % interval {law.low:.3f} to {law.high:.3f}"
    holds = law.half_width <= _WIDEST and law.meets(low, high)
    return Check(told, law.exponent, f"interval meets {low:.4g} to {high:.4g}", holds)


@dataclass(frozen=True)
class Finding:
    """A verdict and what it rests on.

    Args:
        verdict: the word.
        checks: the numbers, each against what it should be.
        within: the largest deviation from the claim's own numbers, where it has some.
        note: a sentence to read beside it, if there is one.
    """

    verdict: Verdict
    checks: tuple[Check, ...]
    within: float | None = None
    note: str = ""

    @classmethod
    def of(cls, checks: Sequence[Check], note: str = "") -> "Finding":
        """Fails if any check does; holds within the largest deviation if there is one."""
        assert checks, "a verdict rests on something"
        if not all(check.holds for check in checks):
            return cls(Verdict.FAILS, tuple(checks), None, note)
        deviations = [check.deviation for check in checks if check.deviation is not None]
        within = max(deviations, default=0.0)
        if within < _EXACT:
            return cls(Verdict.HOLDS, tuple(checks), None, note)
        return cls(Verdict.WITHIN, tuple(checks), within, note)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that can be checked.

    Args:
        id: short, for command lines.
        claim: the statement in one sentence.
        place: where it stands in the paper.
        method: how it is checked.
        measured: what is measured.
        judge: makes a finding of the measurement's result.
        at_length: a slow measurement that says more: taken instead where the run store has all of
            it, or where that is asked for.
        refuted: whether it is known to be wrong, so that failing is how it should come out.
    """

    id: str
    claim: str
    place: str
    method: str
    measured: Measurement
    judge: Callable[[Any], Finding]
    at_length: Measurement | None = None
    refuted: bool = False
