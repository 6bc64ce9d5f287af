"""Training runs: what to train, and how it went."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from factmem._core.result import Result
from factmem.facts.prompts import PromptDistribution
from factmem.training.protocol import Protocol
from factmem.training.state import Evaluation
from factmem.training.status import TrainingStatus
from factmem.transformer.model import Transformer

__all__ = ["TrainingResult", "TrainingRun", "best_run", "runs_for_learning_rates"]


@dataclass(frozen=True)
class TrainingRun:
    """One training run of a stack.

    Args:
        initial_model: the transformer before step 1; its embeddings are not trained.
        prompts: the facts and the prompts about them. Runs of one stack may differ in the answers
            only.
        learning_rate: the optimizer's learning rate.
        group: runs of one group compete: the first to reach the criterion ends the others, since
            only the best run of a group counts. A run with group None competes with no other.
    """

    initial_model: Transformer
    prompts: PromptDistribution
    learning_rate: float
    group: Hashable | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingResult(Result[Transformer]):
    """A trained transformer, and how its training went.

    Args:
        model: the transformer at the end of the run; if it diverged, at the last finite evaluation.
        status: why the run ended.
        learning_rate: the optimizer's learning rate.
        evaluations: steps, loss and accuracy at every evaluation, the first before any step.
    """

    status: TrainingStatus
    learning_rate: float
    evaluations: tuple[Evaluation, ...]

    @property
    def steps(self) -> int:
        """The number of steps completed."""
        return self.evaluations[-1].steps

    @property
    def success(self) -> bool:
        """Whether the criterion was reached."""
        return self.status is TrainingStatus.CRITERION_REACHED

    @property
    def best_accuracy(self) -> float:
        """The largest accuracy at any evaluation. The paper counts this, which is optimistic."""
        return max(evaluation.accuracy for evaluation in self.evaluations)

    @property
    def metrics(self) -> dict[str, Any]:
        """Learning rate, steps, best accuracy and success."""
        return {
            "learning_rate": self.learning_rate,
            "steps": self.steps,
            "best_accuracy": self.best_accuracy,
            "success": self.success,
        }


def runs_for_learning_rates(
    start: Transformer, prompts: PromptDistribution, protocol: Protocol
) -> list[TrainingRun]:
    """Return one run for each learning rate of a protocol, in a group of their own."""
    group = object()
    return [TrainingRun(start, prompts, rate, group) for rate in protocol.learning_rates]


def best_run(results: Sequence[TrainingResult]) -> TrainingResult:
    """Return the best result: by success, then the highest accuracy, then the fewest steps."""
    return max(results, key=lambda run: (run.success, run.best_accuracy, -run.steps))
