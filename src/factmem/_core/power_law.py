"""Fits of y = c · x^exponent, with a confidence interval of the exponent."""

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
    """A fitted power law: a straight line on logarithmic axes.

    Args:
        exponent: the slope of that line.
        low, high: the 95% confidence interval of the exponent; infinite with two points.
        factor: c.
    """

    exponent: float
    low: float
    high: float
    factor: float

    @property
    def half_width(self) -> float:
        """Half the width of the confidence interval."""
        return (self.high - self.low) / 2

    def at(self, x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        """Return c · x^exponent."""
        return self.factor * x**self.exponent

    def overlaps(self, low: Number, high: Number) -> bool:
        """Return whether the confidence interval overlaps the range from low to high."""
        return self.low <= high and low <= self.high


def fit_power_law(
    x: Sequence[Number], y: Sequence[Number], widths: Sequence[Number] | None = None
) -> PowerLaw:
    """Fit log y to log x by least squares.

    Args:
        x, y: the points.
        widths: the widths upper/lower ≥ 1 of the brackets whose centers are y. The true y is
            uniform in its bracket: at the same relative position for equal x, because searches
            often end alike, and independent for different x. This variance is added to that of
            the scatter.

    Raises:
        FactmemError: fewer than two distinct x, or numbers that are not positive.

    Examples:
        >>> law = fit_power_law([1, 2, 4], [3, 12, 48])
        >>> round(law.exponent, 6), round(law.factor, 6)
        (2.0, 3.0)
    """
    if len(x) != len(y) or len(set(x)) < 2 or min(*x, *y) <= 0:
        raise FactmemError(
            "a power law needs positive x and y of equal length, with at least two distinct x"
        )
    from scipy.stats import linregress, norm, t

    fit: Any = linregress([math.log(value) for value in x], [math.log(value) for value in y])
    degrees_of_freedom = len(x) - 2
    # scipy returns NaN for a line without slope and scatter.
    error = 0.0 if math.isnan(fit.stderr) else float(fit.stderr)
    half = math.inf
    if degrees_of_freedom:
        half = float(t.ppf(0.975, degrees_of_freedom)) * error
    if widths is not None:
        half = math.hypot(half, float(norm.ppf(0.975)) * _bracket_error(x, widths))
    slope = float(fit.slope)
    return PowerLaw(slope, slope - half, slope + half, math.exp(float(fit.intercept)))


def _bracket_error(x: Sequence[Number], widths: Sequence[Number]) -> float:
    """Return the standard deviation of the exponent if every log y is uniform in its bracket."""
    log_x = np.log(np.asarray(x, np.float64))
    centered = log_x - log_x.mean()
    shifts = centered / (centered @ centered) * np.log(np.asarray(widths, np.float64)) / 2
    shifts_by_x = np.array([shifts[log_x == value].sum() for value in np.unique(log_x)])
    return float(np.sqrt((shifts_by_x**2).sum() / 3))
