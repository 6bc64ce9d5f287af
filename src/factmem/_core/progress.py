"""How work that takes long tells how far it is."""

from collections.abc import Callable

__all__ = ["Report"]

Report = Callable[..., None]
"""Called from time to time as `report(steps, loss=…, accuracy=…)`: the steps done, and whichever
figures the work has."""
