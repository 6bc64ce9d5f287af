"""Statistics of associative memories over random draws, and of results over seeds.

A missing number is NaN and stays NaN. Importing this module loads no jax.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from factmem.memories import Associations, Memory

__all__ = [
    "MemoryBuilder",
    "Moments",
    "SeedResults",
    "column",
    "facts_at_accuracy",
    "margin_moments",
    "maximum",
    "mean",
    "mean_accuracy",
    "minimum",
]

SeedResults = Sequence[Mapping[str, Any]]
"""Metrics of one experiment, one entry per seed."""

MemoryBuilder = Callable[[Any, "Associations"], "Memory"]
"""Builds a memory from a key and the associations to store."""


def column(results: SeedResults, name: str) -> np.ndarray:
    """Return a metric, a number or a list of numbers, of every seed."""
    return np.array([result[name] for result in results], np.float64)


def mean(results: SeedResults, name: str) -> float:
    """Return the mean of a metric over seeds."""
    return float(np.mean(column(results, name)))


def minimum(results: SeedResults, name: str) -> float:
    """Return the minimum of a metric over seeds."""
    return float(np.min(column(results, name)))


def maximum(results: SeedResults, name: str) -> float:
    """Return the maximum of a metric over seeds."""
    return float(np.max(column(results, name)))


class Moments(NamedTuple):
    """Mean and variance of the margins γ_xy over x, y ≠ f*(x) and draws."""

    mean: float
    variance: float


def margin_moments(
    build: MemoryBuilder, facts: int, dim: int, seed: int, draws: int, outputs: int | None = None
) -> Moments:
    """Compute the moments of all margins over random draws of embeddings and memory."""
    samples = []
    for key, pairs in _draw(facts, dim, seed, draws, outputs):
        margins = np.asarray(build(key, pairs).margins(pairs), np.float64)
        samples.append(margins[np.isfinite(margins)])
    margins = np.concatenate(samples)
    return Moments(float(margins.mean()), float(margins.var()))


def mean_accuracy(
    build: MemoryBuilder, facts: int, dim: int, seed: int, draws: int, outputs: int | None = None
) -> float:
    """Compute the accuracy, averaged over random draws."""
    accuracies = [
        build(key, pairs).score(pairs).accuracy
        for key, pairs in _draw(facts, dim, seed, draws, outputs)
    ]
    return float(np.mean(accuracies))


def facts_at_accuracy(
    build: MemoryBuilder,
    counts: Sequence[int],
    dim: int,
    seed: int,
    draws: int,
    level: float = 0.99,
) -> float:
    """Interpolate the number of associations that are stored at this accuracy.

    The error rate grows by orders of magnitude from one count to the next, so logarithms are
    interpolated.

    Args:
        build: builds the memory.
        counts: numbers of associations, in increasing order.
        dim: d.
        seed: seed of all draws.
        draws: draws per count.
        level: the accuracy.

    Returns:
        The number of associations, or NaN if the level lies outside of the measured range.
    """
    errors = [1 - mean_accuracy(build, count, dim, seed, draws) for count in counts]
    errors = np.maximum.accumulate(np.maximum(errors, 1e-5))
    if not errors[0] < 1 - level <= errors[-1]:
        return float("nan")
    return float(np.exp(np.interp(np.log(1 - level), np.log(errors), np.log(counts))))


def _draw(
    facts: int, dim: int, seed: int, draws: int, outputs: int | None
) -> Iterator[tuple[Any, "Associations"]]:
    import jax.random as jr

    from factmem import memories

    for draw in range(draws):
        key, method_key = jr.split(jr.fold_in(jr.key(seed), draw))
        yield method_key, memories.Associations.draw(facts, dim, outputs, key=key)
