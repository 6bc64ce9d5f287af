"""Training protocols: the paper's, and the best one known. Importing this module loads no jax."""

from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple

from factmem._core.errors import ArgumentError, FactmemError

__all__ = [
    "BEST",
    "LINEAR_PROTOCOL",
    "MLP_PROTOCOL",
    "PAPER",
    "QUICK",
    "QUICK_MLP_PROTOCOL",
    "MemoryProtocol",
    "Protocol",
    "Schedule",
    "StepConfig",
]

Schedule = Literal["constant", "cosine"]

_MAX_STEPS = 2**30
"""Steps are counted in int32."""


def _check_learning_rate(rate: float) -> None:
    if not 0 < rate < inf:
        raise ArgumentError("learning_rate", f"must be positive and finite, got {rate}")


class StepConfig(NamedTuple):
    """The static part of a training step, which is compiled in; all other settings are data."""

    optimizer: str = "adam"
    schedule: Schedule = "constant"
    batch_size: int = 1024
    stratified: bool = False
    """Whether the facts of a batch come from `PromptDistribution.draw_facts_stratified`."""


@dataclass(frozen=True)
class Protocol:
    """How a transformer is trained, and what counts as success.

    Args:
        learning_rates: one run for each, from the same start and on the same prompts; the best
            run counts.
        steps: the maximum number of steps of a run.
        batch: the number of fresh prompts in a step.
        stratified: whether the facts of a batch are a stratified sample, not independent draws.
        optimizer: "adam", "muon" or another name in `OPTIMIZERS`.
        schedule: "constant", or "cosine" decay to 0 at the last step.
        momentum: β1 of Adam, β of Muon.
        beta2: β2 of Adam.
        evaluations: the number of evenly spaced evaluations, not counting the one before step 1.
        test_prompts: the number of fixed prompts on which evaluations measure accuracy.
        criterion: a run succeeds and ends when its accuracy is above this; with 1, no run ends
            before its last step.
        early_stopping: pairs (fraction of the steps, minimum accuracy). A run ends early if its
            best accuracy is below the minimum after that fraction, or, before the first step, if
            its embeddings cannot reach the criterion. If empty, no run ends early.
        hard_noise: the fraction of the prompts of a batch whose noise tokens are the strongest
            ones of a random head (`factmem.training.hard_noise`); the same fraction of the test
            prompts.

    Raises:
        FactmemError: a value is out of range.
    """

    learning_rates: tuple[float, ...]
    steps: int = 2**14
    batch_size: int = 1024
    stratified: bool = False
    optimizer: str = "adam"
    schedule: Schedule = "constant"
    momentum: float = 0.9
    beta2: float = 0.999
    evaluations: int = 128
    test_prompts: int = 1024
    criterion: float = 0.99
    early_stopping: tuple[tuple[float, float], ...] = ()
    hard_noise: float = 0.0

    def __post_init__(self) -> None:
        if not self.learning_rates:
            raise FactmemError("a protocol needs at least one learning rate, got none")
        for rate in self.learning_rates:
            _check_learning_rate(rate)
        if not 1 <= self.evaluations <= self.steps:
            raise FactmemError(
                f"evaluations must be between 1 and the number of steps, got "
                f"{self.evaluations} evaluations and {self.steps} steps"
            )
        if self.steps > _MAX_STEPS:
            raise ArgumentError("steps", f"must be at most {_MAX_STEPS}, got {self.steps}")
        for name in ("batch_size", "test_prompts"):
            if getattr(self, name) < 1:
                raise FactmemError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("momentum", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise FactmemError(
                    f"{name} must be at least 0 and less than 1, got {getattr(self, name)}"
                )
        if not 0 <= self.hard_noise <= 1:
            raise ArgumentError("hard_noise", f"must be between 0 and 1, got {self.hard_noise}")
        if not 0 < self.criterion <= 1:
            raise FactmemError(f"criterion must be above 0 and at most 1, got {self.criterion}")
        for pair in self.early_stopping:
            if not all(0 < number < 1 for number in pair):
                raise FactmemError(
                    "early_stopping must hold pairs (fraction of the steps, accuracy) between "
                    f"0 and 1, got {pair}"
                )

    @property
    def step_config(self) -> StepConfig:
        """The part that is compiled into a step."""
        return StepConfig(self.optimizer, self.schedule, self.batch_size, self.stratified)

    def steps_at(self, evaluation: int) -> int:
        """Return the number of steps before an evaluation; evaluation 0 comes before step 1."""
        return evaluation * self.steps // self.evaluations

    def stops_early(self, steps: int, best_accuracy: float) -> bool:
        """Return whether a run with this best accuracy after so many steps is ended early."""
        return any(
            steps >= fraction * self.steps and best_accuracy < minimum
            for fraction, minimum in self.early_stopping
        )


PAPER = Protocol(learning_rates=(1e-3, 3e-3, 1e-2))
"""The paper's protocol: Adam at a constant rate, 2^14 steps of 1024 fresh prompts, three rates."""

BEST = Protocol(
    learning_rates=(5e-2,),
    steps=2**15,
    optimizer="muon",
    schedule="cosine",
    stratified=True,
    momentum=0.95,
    beta2=0.99,
)
"""Stores the most facts within the prompts and the wall time of `PAPER`: one run of Muon with
cosine decay. docs/training.md tells how it was found."""

QUICK = replace(
    BEST,
    steps=2**12,
    batch_size=512,
    early_stopping=((0.25, 0.5), (0.5, 0.85), (0.625, 0.93), (0.75, 0.97)),
)
"""Takes seconds: `BEST` with a sixteenth of its prompts. Runs end early at accuracies from which no
run recovered (docs/training.md). Shapes of 1,500 to 6,000 parameters store more facts with it than
with `PAPER`."""


@dataclass(frozen=True)
class MemoryProtocol:
    """How an associative memory is trained.

    Args:
        learning_rate: Adam's learning rate, constant.
        steps: the maximum number of full-batch steps.
        evaluations: the number of evenly spaced evaluations; a run ends at the first success.
        criterion: the accuracy that counts as success.

    Raises:
        FactmemError: a value is out of range.
    """

    learning_rate: float
    steps: int
    evaluations: int = 128
    criterion: float = 0.99

    def __post_init__(self) -> None:
        _check_learning_rate(self.learning_rate)
        if self.steps < 1 or self.evaluations < 1 or self.steps % self.evaluations:
            raise FactmemError(
                f"steps must be a positive multiple of evaluations, got {self.steps} steps and "
                f"{self.evaluations} evaluations"
            )
        if not 0 < self.criterion <= 1:
            raise FactmemError(f"criterion must be above 0 and at most 1, got {self.criterion}")


LINEAR_PROTOCOL = MemoryProtocol(learning_rate=1000.0, steps=2**12)
"""The paper's protocol for linear memories. A rate of 1000 is intended: low cross-entropy needs
large weights."""

MLP_PROTOCOL = MemoryProtocol(learning_rate=3e-2, steps=2**15)
"""The paper's protocol for MLP memories."""

QUICK_MLP_PROTOCOL = replace(MLP_PROTOCOL, steps=2**13)
"""`MLP_PROTOCOL` with a quarter of the steps."""
