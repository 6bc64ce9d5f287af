"""Stages of training: a time at which relations are known and subjects are not, if there is one.

In the hallucination stage the loss stands near H(a | r), which is log D for the paper's tables: the
model answers with something that fits the relation, whoever the subject is. A loss that falls past
that level is not yet such a stage: the relation-only loss must be near 0 there. The subject-only
stage is the same with subjects and relations exchanged.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from factmem.dynamics.curves import Curves
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
    """The loss first comes near H(a | r)."""
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
    seen = curves.seen
    known = np.asarray(seen.relation_loss) <= NEAR
    times = curves.times
    level = questions.relation_level
    near = _near(times, curves.loss, level)
    at_once = bool(abs(curves.loss[0] - level) <= NEAR)
    return Stages(
        # Where the loss starts near that level, with one relation for example, nothing comes first.
        init_end=None if near is None or at_once else near.start,
        hallucination=_plateau(times, curves.loss, known, level),
        subject_only=_plateau(
            times, curves.loss, np.asarray(seen.subject_loss) <= NEAR, questions.subject_level
        ),
    )


def _plateau(
    times: Float[np.ndarray, " points"],
    loss: Float[np.ndarray, " points"],
    known: Bool[np.ndarray, " points"],
    level: float,
) -> Plateau | None:
    """The time near a level, if the part that it stands for is known at some point of it."""
    if level <= NEAR:  # The part is all there is to know: no stage, but the end.
        return None
    if not (known & (np.abs(loss - level) <= NEAR)).any():
        return None
    return _near(times, loss, level)


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
        start=float(times[0]) if first == 0 else _root(times, off, first - 1),
        end=None if last == len(times) - 1 else _root(times, off, last),
    )


def _root(
    times: Float[np.ndarray, " points"], values: Float[np.ndarray, " points"], place: int
) -> float:
    """Where values are 0 between a point and the next, on a line."""
    before, after = values[place], values[place + 1]
    share = before / (before - after)
    return float(times[place] + share * (times[place + 1] - times[place]))
