"""Stages of training: is there a time at which relations are known and subjects are not?

In the hallucination stage the loss stays near H(a | r), which is log D for the paper's tables: the
model answers with something that fits the relation, whatever the subject. Every loss that falls
from log |A| to 0 passes this level, so the level alone does not make a stage: at some time in it,
predictions must be near p(a | r), with a mean KL divergence of at most 0.1. The subject-only stage
is the same with subjects and relations exchanged.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from factmem.dynamics.curves import Curves, crossing
from factmem.dynamics.prompt_ensembles import PromptPopulation

__all__ = ["TOLERANCE", "Plateau", "Stages", "find_stages"]

TOLERANCE = 0.1
"""A loss within this many nats of a level is near it."""


@dataclass(frozen=True)
class Plateau:
    """The interval from the first to the last time at which the loss is near a level."""

    start: float
    end: float | None
    """None if the loss is still near the level at the last time."""


@dataclass(frozen=True)
class Stages:
    """When the stages begin and end; None for a stage that does not exist."""

    init_end: float | None
    """When the loss is first near H(a | r); None if it never is, or starts there."""
    hallucination: Plateau | None
    """Relations are known and subjects are not."""
    subject_only: Plateau | None
    """Subjects are known and relations are not."""

    @property
    def hallucination_end(self) -> float | None:
        """The end of the hallucination stage; None if it does not exist or has not ended."""
        return None if self.hallucination is None else self.hallucination.end


def find_stages(curves: Curves, population: PromptPopulation) -> Stages:
    """Find the stages in learning curves, by linear interpolation between points."""
    times, statistics = curves.times, curves.statistics
    near = _near_level(times, curves.loss, population.relation_entropy)
    return Stages(
        init_end=None if near is None or near.start == times[0] else near.start,
        hallucination=_plateau(
            curves, np.asarray(statistics.relation_kl), population.relation_entropy
        ),
        subject_only=_plateau(
            curves, np.asarray(statistics.subject_kl), population.subject_entropy
        ),
    )


def _plateau(curves: Curves, kl: Float[np.ndarray, " points"], level: float) -> Plateau | None:
    """Return the plateau at a level; None if predictions never come near those of the level."""
    loss = curves.loss
    if level <= TOLERANCE or loss[0] <= level + TOLERANCE:
        return None  # nothing is left to learn after it, or nothing was learned before it
    if not ((kl <= TOLERANCE) & (np.abs(loss - level) <= TOLERANCE)).any():
        return None
    return _near_level(curves.times, loss, level)


def _near_level(
    times: Float[np.ndarray, " points"], loss: Float[np.ndarray, " points"], level: float
) -> Plateau | None:
    """Return when the loss is first and last within `TOLERANCE` of a level."""
    excess = np.abs(loss - level) - TOLERANCE
    inside = np.flatnonzero(excess <= 0)
    if not len(inside):
        return None
    first, last = int(inside[0]), int(inside[-1])
    return Plateau(
        start=float(times[0]) if first == 0 else crossing(times, excess, first - 1),
        end=None if last == len(times) - 1 else crossing(times, excess, last),
    )
