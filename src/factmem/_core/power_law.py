"""Fitting y = c · x^exponent to points, with the uncertainty of the exponent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from factmem._core.errors import FactmemError

__all__ = ["Number", "PowerLaw", "fit_power_law"]

Number = int | float


@dataclass(frozen=True)
class PowerLaw:
    """A line through points on logarithmic axes.

    Args:
        exponent: its slope.
        low, high: the ends of the slope's 95 % interval; infinite with two points.
        factor: c.
    """

    exponent: float
    low: float
    high: float
    factor: float

    @property
    def half_width(self) -> float:
        """Of the interval."""
        return (self.high - self.low) / 2

    def at(self, x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        """Its values."""
        return self.factor * x**self.exponent

    def meets(self, low: Number, high: Number) -> bool:
        """Whether some exponent of the interval lies between these."""
        return self.low <= high and low <= self.high


def fit_power_law(
    x: Sequence[Number], y: Sequence[Number], widths: Sequence[Number] | None = None
) -> PowerLaw:
    """Least squares of log y on log x.

    Args:
        x, y: the points.
        widths: of brackets of which y are the middles, as upper/lower ≥ 1. A y is anywhere in its
            bracket, those of one x at the same place (searches often end alike), those of
            different x independently: this is added to what the scatter says of the exponent.

    Raises:
        FactmemError: fewer than two different x, or numbers that have no logarithm.

    Examples:
        >>> law = fit_power_law([1, 2, 4], [3, 12, 48])
        >>> round(law.exponent, 6), round(law.factor, 6)
        (2.0, 3.0)
    """
    if len(x) != len(y) or len(set(x)) < 2 or min(*x, *y) <= 0:
        raise FactmemError("a power law needs pairs of numbers above 0, with two different x")
    from scipy.stats import linregress, norm, t

    fit: Any = linregress([math.log(each) for each in x], [math.log(each) for each in y])
    free = len(x) - 2
    # scipy leaves the error of a line without any slope or scatter undefined
    error = 0.0 if math.isnan(fit.stderr) else float(fit.stderr)
    half = float(t.ppf(0.975, free)) * error if free else math.inf
    if widths is not None:
        half = math.hypot(half, float(norm.ppf(0.975)) * _error_of_brackets(x, widths))
    slope = float(fit.slope)
    return PowerLaw(slope, slope - half, slope + half, math.exp(float(fit.intercept)))


def _error_of_brackets(x: Sequence[Number], widths: Sequence[Number]) -> float:
    """The standard deviation of the exponent where every log y is uniform in its bracket."""
    place = np.log(np.asarray(x, np.float64))
    away = place - place.mean()
    shifts = away / (away @ away) * np.log(np.asarray(widths, np.float64)) / 2
    together = np.array([shifts[place == each].sum() for each in np.unique(place)])
    return float(np.sqrt((together**2).sum() / 3))
