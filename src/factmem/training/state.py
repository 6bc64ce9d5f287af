"""The state of training runs at an evaluation, in memory and in a checkpoint."""

from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from factmem._core.errors import TensorFileError
from factmem.training.protocol import Protocol
from factmem.training.stack import RunStack, trainable_state
from factmem.training.status import TrainingStatus

__all__ = ["Evaluation", "TrainingState"]


@dataclass(frozen=True)
class Evaluation:
    """The loss (in nats) and accuracy of one run on the protocol's test prompts."""

    steps: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class TrainingState:
    """The state of several runs at an evaluation.

    It is replaced and never modified, so an interruption leaves a consistent state.

    Args:
        stack: the runs; those that have ended are as they were when they ended.
        evaluations: for every run, the evaluations so far.
        statuses: for every run, how it ended; None if it has not.
    """

    stack: RunStack
    evaluations: tuple[tuple[Evaluation, ...], ...]
    statuses: tuple[TrainingStatus | None, ...]

    @classmethod
    def initial(cls, stack: RunStack) -> "TrainingState":
        """Return the state before the first evaluation."""
        runs = stack.answers.shape[0]
        return cls(stack, ((),) * runs, (None,) * runs)

    @property
    def active(self) -> Bool[np.ndarray, " runs"]:
        """Which runs have not ended."""
        return np.array([status is None for status in self.statuses])

    @property
    def evaluations_done(self) -> int:
        """The number of evaluations done; the first comes before any step."""
        return max(len(evaluations) for evaluations in self.evaluations)

    def after_evaluation(
        self,
        stack: RunStack,
        evaluations: tuple[Evaluation, ...],
        statuses: tuple[TrainingStatus | None, ...],
    ) -> "TrainingState":
        """Return the state after one more evaluation of every run, some of which may end at it."""
        active = self.active
        # A diverged run goes back to the last evaluation at which it was finite.
        diverged = [status is TrainingStatus.DIVERGED for status in statuses]
        return TrainingState(
            stack=_select(active & diverged, self.stack, stack),
            evaluations=tuple(
                (*before, evaluation) if still_active else before
                for before, evaluation, still_active in zip(
                    self.evaluations, evaluations, active, strict=True
                )
            ),
            statuses=tuple(
                after if still_active else before
                for before, after, still_active in zip(self.statuses, statuses, active, strict=True)
            ),
        )

    # ---- checkpoints ---------------------------------------------------------------------------

    @property
    def arrays(self) -> Any:
        """The arrays of the stack that a checkpoint stores."""
        return trainable_state(self.stack)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The JSON data that a checkpoint stores; losses that are not finite become null."""
        return [
            {
                "status": None if status is None else status.label,
                "evaluations": [
                    [
                        evaluation.steps,
                        evaluation.loss if isfinite(evaluation.loss) else None,
                        evaluation.accuracy,
                    ]
                    for evaluation in evaluations
                ],
            }
            for status, evaluations in zip(self.statuses, self.evaluations, strict=True)
        ]

    def restore(self, arrays: Any, records: Any, protocol: Protocol) -> "TrainingState":
        """Return the state stored in a checkpoint of the training whose initial state is `self`.

        Raises:
            TensorFileError: the records do not fit this training.
        """
        try:
            evaluations = tuple(
                tuple(_evaluation(*entry) for entry in run["evaluations"]) for run in records
            )
            labels = [run["status"] for run in records]
            statuses = tuple(None if label is None else _STATUSES[label] for label in labels)
        except (KeyError, TypeError, ValueError):
            evaluations, statuses = (), ()
        restored = replace(self, evaluations=evaluations, statuses=statuses)
        if len(evaluations) != len(self.evaluations) or not restored._is_consistent(protocol):
            raise TensorFileError("the checkpoint is damaged: its records do not fit this training")
        return replace(restored, stack=eqx.tree_at(trainable_state, self.stack, arrays))

    def _is_consistent(self, protocol: Protocol) -> bool:
        """Return whether there is exactly one evaluation at each step of the protocol so far."""
        done = self.evaluations_done
        return done <= protocol.evaluations + 1 and all(
            [evaluation.steps for evaluation in evaluations]
            == [*map(protocol.steps_at, range(len(evaluations)))]
            and (0 < len(evaluations) <= done if status else len(evaluations) == done > 0)
            and (status is not None or done <= protocol.evaluations)
            for evaluations, status in zip(self.evaluations, self.statuses, strict=True)
        )


_STATUSES = {status.label: status for status in TrainingStatus}


def _evaluation(steps: int, loss: float | None, accuracy: float) -> Evaluation:
    """Convert an evaluation from its JSON form."""
    return Evaluation(int(steps), nan if loss is None else float(loss), float(accuracy))


def _select(condition: Bool[np.ndarray, " runs"], yes: RunStack, no: RunStack) -> RunStack:
    """Take every run from one of two stacks."""

    def select_leaf(yes: Array, no: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)

    return jax.tree.map(select_leaf, yes, no) if condition.any() else no
