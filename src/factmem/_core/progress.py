"""The type of progress callbacks."""

from collections.abc import Callable

__all__ = ["Report"]

Report = Callable[..., None]
"""Called during long computations as `report(steps, loss=…, accuracy=…)`: the number of steps
completed, or None while nothing is counted, and the metrics that are available."""
