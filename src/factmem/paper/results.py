"""Numbers out of the results of several seeds. A number that is missing is NaN, and stays so."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Results", "column", "least", "mean", "most"]

Results = Sequence[Mapping[str, Any]]
"""What was measured, one entry a seed."""


def column(results: Results, name: str) -> np.ndarray:
    """A number, or a list of them, of every seed."""
    return np.array([result[name] for result in results], np.float64)


def mean(results: Results, name: str) -> float:
    """On average over seeds."""
    return float(np.mean(column(results, name)))


def least(results: Results, name: str) -> float:
    """Of any seed."""
    return float(np.min(column(results, name)))


def most(results: Results, name: str) -> float:
    """Of any seed."""
    return float(np.max(column(results, name)))
