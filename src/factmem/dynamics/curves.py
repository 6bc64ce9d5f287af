"""Learning curves: losses at chosen times."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from factmem._core.errors import FactmemError
from factmem.dynamics.prompt_ensembles import LossStatistics

__all__ = ["CONVERGED_LOSS", "Curves", "Spacing", "crossing", "spaced_times"]

CONVERGED_LOSS = 0.01
"""Training has converged when the loss, in nats, is at most this."""

Spacing = Literal["equal", "log"]
_FIRST_LOG_TIME = 1e-3
"""The first of logarithmically spaced times, as a fraction of the last."""


@dataclass(frozen=True)
class Curves:
    """Losses against flow time, which is steps × learning rate for SGD.

    Args:
        times: the times, increasing.
        statistics: the losses; the first axis of every field is over the times.
    """

    times: Float[np.ndarray, " points"]
    statistics: LossStatistics

    @property
    def loss(self) -> Float[np.ndarray, " points"]:
        """The loss at every time."""
        return np.asarray(self.statistics.loss)

    @property
    def converged_at(self) -> float | None:
        """The time at which the loss first was at most `CONVERGED_LOSS`; None if it never was."""
        return self.first_below(CONVERGED_LOSS * (1 + 1e-6))  # flows end there to 1e-9

    def first_below(self, loss: float) -> float | None:
        """Return when the loss first is at most this, by linear interpolation; None if never."""
        below = np.flatnonzero(self.loss <= loss)
        if not len(below):
            return None
        first = int(below[0])
        if first == 0:
            return float(self.times[0])
        return crossing(self.times, self.loss - loss, first - 1)

    def nearest(self, times: Float[np.ndarray, " queries"]) -> Int[np.ndarray, " queries"]:
        """Return the indices of the points nearest to the given times."""
        midpoints = (self.times[1:] + self.times[:-1]) / 2
        return np.searchsorted(midpoints, times)


def crossing(
    times: Float[np.ndarray, " points"], values: Float[np.ndarray, " points"], index: int
) -> float:
    """Return where the line from point `index` to the next one crosses 0."""
    before, after = values[index], values[index + 1]
    fraction = before / (before - after)
    return float(times[index] + fraction * (times[index + 1] - times[index]))


def spaced_times(end: float, points: int, spacing: Spacing) -> Float[np.ndarray, " points"]:
    """Return times up to the end: equally spaced from 0, or logarithmically from end/1000.

    Raises:
        FactmemError: there are fewer than two points.
    """
    if points < 2:
        raise FactmemError(f"points must be at least 2, got {points}")
    if spacing == "log":
        return np.geomspace(_FIRST_LOG_TIME * end, end, points)
    return np.linspace(0.0, end, points)
