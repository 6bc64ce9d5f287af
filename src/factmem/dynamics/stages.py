"""Stages of training: a time at which relations are known and subjects are not, if there is one.

In the hallucination stage the loss stands near H(a | r), which is log D for the paper's tables: the
model answers with something that fits the relation, whoever the subject is. Every loss that falls
from log |A| to 0 passes that level, so this alone is no stage: somewhere in it predictions must be
near p(a | r), by a mean divergence of at most 0.1. The subject-only stage is the same with subjects
and relations exchanged.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from factmem.dynamics.curves import Curves, crossing
from factmem.dynamics.questions import Population

__all__ = ["NEAR", "Plateau", "Stages", "find_stages"]

NEAR = 0.1
"""Nats within which a loss is near a level."""


@dataclass(frozen=True)
class Plateau:
    """From the first to the last moment at which the loss is near a level."""

    start: float
    end: float | None
    """None while the loss is still there, or where it stays there for good."""


@dataclass(frozen=True)
class Stages:
    """When the stages begin and end; None for what does not exist."""

    init_end: float | None
    """The loss first comes near H(a | r); None if it never does, or starts there."""
    hallucination: Plateau | None
    """Relations are known and subjects are not."""
    subject_only: Plateau | None
    """Subjects are known and relations are not."""

    @property
    def hallucination_end(self) -> float | None:
        """The loss is last near H(a | r), after a stage in which it was so."""
        return None if self.hallucination is None else self.hallucination.end


def find_stages(curves: Curves, questions: Population) -> Stages:
    """Finds the stages in losses, between points linearly."""
    times, loss = curves.times, curves.loss
    near = _near(times, loss, questions.relation_level)
    return Stages(
        init_end=None if near is None or near.start == times[0] else near.start,
        hallucination=_plateau(
            curves, np.asarray(curves.seen.relation_gap), questions.relation_level
        ),
        subject_only=_plateau(curves, np.asarray(curves.seen.subject_gap), questions.subject_level),
    )


def _plateau(curves: Curves, gap: Float[np.ndarray, " points"], level: float) -> Plateau | None:
    """The time near a level, if predictions are near those that the level stands for."""
    loss = curves.loss
    if level <= NEAR or loss[0] <= level + NEAR:
        return None  # nothing would be left to learn after it, or nothing was learned before it
    if not ((gap <= NEAR) & (np.abs(loss - level) <= NEAR)).any():
        return None
    return _near(curves.times, loss, level)


def _near(
    times: Float[np.ndarray, " points"], loss: Float[np.ndarray, " points"], level: float
) -> Plateau | None:
    """When the loss is first and last within `NEAR` of a level."""
    off = np.abs(loss - level) - NEAR
    inside = np.flatnonzero(off <= 0)
    if not len(inside):
        return None
    first, last = int(inside[0]), int(inside[-1])
    return Plateau(
        start=float(times[0]) if first == 0 else crossing(times, off, first - 1),
        end=None if last == len(times) - 1 else crossing(times, off, last),
    )
