"""The protocols of training: the paper's own, and the best that we know. Loads no jax."""

from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple

from factmem._core.errors import FactmemError

__all__ = [
    "BEST",
    "LINEAR_PROTOCOL",
    "MLP_PROTOCOL",
    "PAPER",
    "QUICK",
    "QUICK_MLP_PROTOCOL",
    "MemoryProtocol",
    "Optimizer",
    "Protocol",
    "Recipe",
    "Schedule",
]

Optimizer = Literal["adam", "muon"]
Schedule = Literal["constant", "cosine"]

_MOST_STEPS = 2**30
"""Steps are counted in 32 bits."""


class Recipe(NamedTuple):
    """What is compiled into a step; all else is data."""

    optimizer: Optimizer = "adam"
    schedule: Schedule = "constant"
    batch: int = 1024
    evenly: bool = False
    """Whether the facts of a batch are drawn evenly (`PromptDistribution.draw_facts_evenly`)."""


@dataclass(frozen=True)
class Protocol:
    """How a transformer is trained, and what counts as success.

    Args:
        learning_rates: a run for each, from the same start and on the same prompts; the best
            one counts.
        steps: of every run, at most.
        batch: fresh prompts in every step.
        evenly: whether their facts are drawn evenly, and not independently.
        optimizer, schedule: see `optimizers`.
        momentum: β1 of Adam, β of Muon.
        memory: β2 of Adam.
        checks: how often accuracy is measured, evenly spaced, besides once before the start.
        prompts: on how many fixed prompts.
        criterion: an accuracy above this is a success, and ends a run.
        hopeless: pairs of a share of the steps and an accuracy: a run whose best accuracy is below
            that after this share is ended, and one whose embeddings do not allow the criterion at
            once. Nothing is ended so if there are none.

    Raises:
        FactmemError: numbers that make no protocol.
    """

    learning_rates: tuple[float, ...]
    steps: int = 2**14
    batch: int = 1024
    evenly: bool = False
    optimizer: Optimizer = "adam"
    schedule: Schedule = "constant"
    momentum: float = 0.9
    memory: float = 0.999
    checks: int = 128
    prompts: int = 1024
    criterion: float = 0.99
    hopeless: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.learning_rates:
            raise FactmemError("a protocol has at least one learning rate")
        for rate in self.learning_rates:
            if not 0 < rate < inf:
                raise FactmemError(f"a learning rate is positive, not {rate}")
        if not 1 <= self.checks <= self.steps:
            raise FactmemError(f"{self.steps} steps cannot be checked {self.checks} times")
        if self.steps > _MOST_STEPS:
            raise FactmemError(f"a run has at most {_MOST_STEPS} steps, not {self.steps}")
        if min(self.batch, self.prompts) < 1:
            raise FactmemError("a batch holds at least one prompt")
        if not (0 <= self.momentum < 1 and 0 <= self.memory < 1):
            raise FactmemError("momentum and memory are at least 0 and less than 1")
        if not 0 < self.criterion < 1:
            raise FactmemError(f"a criterion is an accuracy between 0 and 1, not {self.criterion}")
        if not all(0 < share < 1 and 0 < least < 1 for share, least in self.hopeless):
            raise FactmemError("hopeless are shares of the steps and accuracies between 0 and 1")

    @property
    def recipe(self) -> Recipe:
        """What of it is compiled into a step."""
        return Recipe(self.optimizer, self.schedule, self.batch, self.evenly)

    def steps_at(self, check: int) -> int:
        """The steps done before a check; check 0 comes before all."""
        return check * self.steps // self.checks

    def is_hopeless(self, steps: int, best_accuracy: float) -> bool:
        """Whether a run that has come no further after so many steps is ended."""
        return any(
            steps >= share * self.steps and best_accuracy < least for share, least in self.hopeless
        )


PAPER = Protocol(learning_rates=(1e-3, 3e-3, 1e-2))
"""Figure 4: Adam at a constant rate, 2^14 steps of 1024 fresh prompts, three rates."""

BEST = Protocol(
    learning_rates=(5e-2,),
    steps=2**15,
    optimizer="muon",
    schedule="cosine",
    evenly=True,
    momentum=0.95,
    memory=0.99,
)
"""The most facts within the prompts and the wall time of `PAPER`: one run by Muon whose rate falls
as a cosine. How it was found stands in docs/training.md."""

QUICK = replace(
    BEST,
    steps=2**12,
    batch=512,
    hopeless=((0.25, 0.5), (0.5, 0.85), (0.625, 0.93), (0.75, 0.97)),
)
"""For checks in seconds: `BEST` on a sixteenth of its prompts, ended early where nothing was ever
stored (docs/training.md). Shapes of 1,500 to 6,000 parameters store more by it than by `PAPER`."""


@dataclass(frozen=True)
class MemoryProtocol:
    """How a memory is trained.

    Args:
        learning_rate: Adam's, constant.
        steps: at most so many, each on all associations.
        checks: how often accuracy is measured, evenly spaced; a run ends at a success.
        criterion: the accuracy that is a success.

    Raises:
        FactmemError: numbers that make no protocol.
    """

    learning_rate: float
    steps: int
    checks: int = 128
    criterion: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < inf:
            raise FactmemError(f"a learning rate is positive, not {self.learning_rate}")
        if self.steps < 1 or self.checks < 1 or self.steps % self.checks:
            raise FactmemError(
                f"{self.steps} steps cannot be checked {self.checks} times at equal distances"
            )
        if not 0 < self.criterion <= 1:
            raise FactmemError(f"a criterion is an accuracy above 0, up to 1, not {self.criterion}")


LINEAR_PROTOCOL = MemoryProtocol(learning_rate=1000.0, steps=2**12)
"""Figure 1 left. The rate of 1000 is no slip: cross-entropy wants large weights."""

MLP_PROTOCOL = MemoryProtocol(learning_rate=3e-2, steps=2**15)
"""Figures 1 right and 6."""

QUICK_MLP_PROTOCOL = replace(MLP_PROTOCOL, steps=2**13)
"""The same in a quarter of the steps."""
