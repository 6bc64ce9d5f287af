"""Sequential learning: relations are learned while the weights of subjects and noise are small.

The theorem requires S ≥ 8R√(2D) and |N| ≥ 4R√(2D)T. From the balanced start with a small enough
scale α it promises a time at which Σ_a (p̂(a) − p(a|r))² is small for every prompt, before any
weight of a subject or noise token exceeds √α.

Reference: Theorem 6.
"""

from dataclasses import dataclass

import numpy as np

from factmem.dynamics.flow import Flow
from factmem.dynamics.prompt_ensembles import PromptPopulation

__all__ = [
    "CLOSE_DISTANCE",
    "SequentialConditions",
    "SequentialLearning",
    "sequential_learning",
]

CLOSE_DISTANCE = 1e-3
"""Predictions count as those of the relation alone if Σ_a (p̂(a) − p(a|r))² is below this."""


@dataclass(frozen=True)
class SequentialConditions:
    """The theorem's conditions on the sizes."""

    subjects: int
    subjects_needed: float
    """8R√(2D)."""
    noise: int
    noise_needed: float
    """4R√(2D)T."""

    @classmethod
    def from_population(cls, population: PromptPopulation) -> "SequentialConditions":
        """Return the conditions; D is the largest number of answers of a relation."""
        subjects, relations = population.sizes
        max_answers = int((population.given_relation > 0).sum(axis=1).max())
        unit = relations * float(np.sqrt(2 * max_answers))
        return cls(
            subjects,
            8 * unit,
            population.noise,
            4 * unit * population.length,
        )

    @property
    def met(self) -> bool:
        """Whether both conditions hold; equality counts, up to rounding."""
        slack = 1 + 1e-12
        return (
            self.subjects * slack >= self.subjects_needed
            and self.noise * slack >= self.noise_needed
        )


@dataclass(frozen=True)
class SequentialLearning:
    """Whether a flow does what the theorem promises; a weight is small if it is at most √α."""

    min_relation_distance: float | None
    """The minimum over time of max over prompts Σ_a (p̂(a) − p(a|r))² while the weights of subjects
    and noise are small; None if they never are."""
    relations_learned_time: float | None
    """When the distance was first below `CLOSE_DISTANCE` while those weights were small; None if
    never."""
    max_other_weight: float | None
    """The largest |W_OV(a, z)| or |W_KQ(z)| of any subject or noise token up to that time."""
    weight_bound: float
    """√α, where α is the scale of the start."""
    bound_exceeded_time: float | None
    """When the first weight of a subject or noise token exceeded √α; None if never."""

    @property
    def holds(self) -> bool:
        """Whether relations were learned while the weights of subjects and noise were small."""
        return self.relations_learned_time is not None


def sequential_learning(
    flow: Flow, population: PromptPopulation, scale: float
) -> SequentialLearning:
    """Look for sequential learning in a flow that started at scale α."""
    kinds = population.split_by_kind(np.maximum(np.abs(flow.kq), flow.largest_ov))
    subjects_and_noise = np.concatenate([kinds.subjects, kinds.noise], axis=1)
    weights = np.maximum.accumulate(subjects_and_noise.max(axis=1))
    bound = float(np.sqrt(scale))
    small = weights <= bound
    distance = np.where(small, np.asarray(flow.statistics.relation_distance), np.inf)
    close = np.flatnonzero(distance < CLOSE_DISTANCE)
    return SequentialLearning(
        min_relation_distance=float(distance.min()) if small[0] else None,
        relations_learned_time=float(flow.times[close[0]]) if len(close) else None,
        max_other_weight=float(weights[close[0]]) if len(close) else None,
        weight_bound=bound,
        bound_exceeded_time=None if small.all() else float(flow.times[np.argmin(small)]),
    )
