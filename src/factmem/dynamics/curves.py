"""What is kept of a training: losses at chosen times, never the weights at each."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from factmem._core.errors import FactmemError
from factmem.dynamics.questions import Seen

__all__ = ["CONVERGED", "Curves", "Spacing", "crossing", "spaced"]

CONVERGED = 0.01
"""The loss, in nats, at which training is over."""

Spacing = Literal["equal", "log"]
_SHORTEST = 1e-3
"""The first of logarithmic times, as a part of the last."""


@dataclass(frozen=True)
class Curves:
    """Losses against flow time, which is steps × rate for descent."""

    times: Float[np.ndarray, " points"]
    seen: Seen
    """Every field has the points as its first axis."""

    @property
    def loss(self) -> Float[np.ndarray, " points"]:
        """The loss at every time."""
        return np.asarray(self.seen.loss)

    @property
    def converged_at(self) -> float | None:
        """When the loss came down to `CONVERGED`, or None."""
        return self.first_below(CONVERGED * (1 + 1e-6))  # flows end there to 1e-9

    def first_below(self, loss: float) -> float | None:
        """The time at which the loss first comes down to this, between points linearly; or None."""
        below = np.flatnonzero(self.loss <= loss)
        if not len(below):
            return None
        first = int(below[0])
        if first == 0:
            return float(self.times[0])
        return crossing(self.times, self.loss - loss, first - 1)

    def nearest(self, times: Float[np.ndarray, " wanted"]) -> Int[np.ndarray, " wanted"]:
        """Which points are nearest to these times."""
        middles = (self.times[1:] + self.times[:-1]) / 2
        return np.searchsorted(middles, times)


def crossing(
    times: Float[np.ndarray, " points"], values: Float[np.ndarray, " points"], place: int
) -> float:
    """Where values are 0 between a point and the next, on a line."""
    before, after = values[place], values[place + 1]
    share = before / (before - after)
    return float(times[place] + share * (times[place + 1] - times[place]))


def spaced(end: float, points: int, spacing: Spacing) -> Float[np.ndarray, " points"]:
    """So many times up to the end: from 0 in equal steps, or from end/1000 in equal factors.

    Raises:
        FactmemError: fewer than two points.
    """
    if points < 2:
        raise FactmemError(f"a curve needs at least 2 points, not {points}")
    if spacing == "log":
        return np.geomspace(_SHORTEST * end, end, points)
    return np.linspace(0.0, end, points)
