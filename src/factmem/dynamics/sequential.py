"""Theorem 6, measured: relations are learned while subjects and noise are still small.

The theorem asks for S ≥ 8R√(2D) and |N| ≥ 4R√(2D)T, and promises from the balanced start with a
small enough scale α a time at which Σ_a (p̂(a) − p(a|r))² is small for every prompt, before any
weight of a subject or of noise exceeds √α.
"""

from dataclasses import dataclass

import numpy as np

from factmem.dynamics.flow import Flow
from factmem.dynamics.questions import Population

__all__ = ["CLOSE", "Conditions", "Sequential", "sequential_learning"]

CLOSE = 1e-3
"""Σ_a (p̂(a) − p(a|r))² below which predictions are those of the relation alone."""


@dataclass(frozen=True)
class Conditions:
    """What Theorem 6 asks of sizes."""

    subjects: int
    subjects_needed: float
    """8R√(2D)."""
    noise: int
    noise_needed: float
    """4R√(2D)T."""

    @classmethod
    def of(cls, questions: Population) -> "Conditions":
        """Those of a table and its prompts; D is the most answers of a relation."""
        subjects, relations = questions.sizes
        most = int((questions.given_relation > 0).sum(axis=1).max())
        unit = relations * float(np.sqrt(2 * most))
        return cls(
            subjects,
            8 * unit,
            questions.noise,
            4 * unit * questions.length,
        )

    @property
    def met(self) -> bool:
        """Whether both hold; equality is enough, and rounding does not decide about it."""
        slack = 1 + 1e-12
        return (
            self.subjects * slack >= self.subjects_needed
            and self.noise * slack >= self.noise_needed
        )


@dataclass(frozen=True)
class Sequential:
    """What a flow did of what the theorem says; small is what stays up to √α."""

    distance: float | None
    """The smallest max over prompts of Σ_a (p̂(a) − p(a|r))² while subjects and noise are small;
    None if they never are."""
    close_at: float | None
    """When it first was below `CLOSE`, while they are; None if it never was."""
    largest_weight: float | None
    """The largest |W_OV(a, z)| or |W_KQ(z)| of any subject or noise token up to that time."""
    bound: float
    """√α, α being the scale of the start."""
    large_at: float | None
    """When the first weight of a subject or of noise exceeded √α."""

    @property
    def holds(self) -> bool:
        """Whether predictions were those of the relation while subjects and noise were small."""
        return self.close_at is not None


def sequential_learning(flow: Flow, questions: Population, scale: float) -> Sequential:
    """Looks for the time of which Theorem 6 speaks in a flow that started at scale α."""
    kinds = questions.by_kind(np.maximum(np.abs(flow.kq), flow.largest_ov))
    watched = np.concatenate([kinds.subjects, kinds.noise], axis=1)
    weights = np.maximum.accumulate(watched.max(axis=1))
    bound = float(np.sqrt(scale))
    small = weights <= bound
    distance = np.where(small, np.asarray(flow.seen.distance), np.inf)
    close = np.flatnonzero(distance < CLOSE)
    return Sequential(
        distance=float(distance.min()) if small[0] else None,
        close_at=float(flow.times[close[0]]) if len(close) else None,
        largest_weight=float(weights[close[0]]) if len(close) else None,
        bound=bound,
        large_at=None if small.all() else float(flow.times[np.argmin(small)]),
    )
