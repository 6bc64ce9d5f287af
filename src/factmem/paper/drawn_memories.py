"""Memories over draws of their embeddings: moments of margins, and how much is stored.

Importing this loads no jax.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from factmem.memories import Associations, Memory

__all__ = ["Maker", "Moments", "facts_at_accuracy", "margin_moments", "mean_accuracy"]

Maker = Callable[[Any, "Associations"], "Memory"]
"""Makes a memory from a key and what it is to store."""


class Moments(NamedTuple):
    """Mean and variance of margins γ_xy over x, y ≠ f*(x) and draws."""

    mean: float
    variance: float


def margin_moments(
    make: Maker, facts: int, dim: int, seed: int, draws: int, outputs: int | None = None
) -> Moments:
    """The moments of all margins over so many draws of everything random."""
    found = []
    for key, pairs in _drawn(facts, dim, seed, draws, outputs):
        margins = np.asarray(make(key, pairs).margins(pairs), np.float64)
        found.append(margins[np.isfinite(margins)])
    every = np.concatenate(found)
    return Moments(float(every.mean()), float(every.var()))


def mean_accuracy(
    make: Maker, facts: int, dim: int, seed: int, draws: int, outputs: int | None = None
) -> float:
    """The share recalled, on average over draws."""
    scores = [
        make(key, pairs).score(pairs).accuracy
        for key, pairs in _drawn(facts, dim, seed, draws, outputs)
    ]
    return float(np.mean(scores))


def facts_at_accuracy(
    make: Maker, counts: Sequence[int], dim: int, seed: int, draws: int, level: float = 0.99
) -> float:
    """How many associations are stored at this accuracy, between counts that rise.

    Errors grow by orders of magnitude from one count to the next, so logarithms are interpolated.
    NaN where the level lies outside of what the counts show.
    """
    errors = [1 - mean_accuracy(make, count, dim, seed, draws) for count in counts]
    errors = np.maximum.accumulate(np.maximum(errors, 1e-5))
    if not errors[0] < 1 - level <= errors[-1]:
        return float("nan")
    return float(np.exp(np.interp(np.log(1 - level), np.log(errors), np.log(counts))))


def _drawn(
    facts: int, dim: int, seed: int, draws: int, outputs: int | None
) -> Iterator[tuple[Any, "Associations"]]:
    import jax.random as jr

    from factmem import memories

    for draw in range(draws):
        key, method_key = jr.split(jr.fold_in(jr.key(seed), draw))
        yield method_key, memories.Associations.draw(key, facts, dim, outputs)
