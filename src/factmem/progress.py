"""How work that takes long tells how far it is."""

from collections.abc import Callable

__all__ = ["Report"]

Report = Callable[[int, float], None]
"""Told from time to time the steps done, and a number: the loss of a fit, accuracy in training."""
