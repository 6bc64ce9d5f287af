"""The state of a training at a check, in memory and in a checkpoint."""

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

__all__ = ["Check", "TrainingState"]


@dataclass(frozen=True)
class Check:
    """The loss (in nats) and accuracy of one run on the protocol's test prompts."""

    steps: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class TrainingState:
    """The state of several runs at a check.

    It is replaced and never modified, so an interruption leaves a consistent state.

    Args:
        stack: the runs; those that have ended are as they were when they ended.
        checks: for every run, the checks so far.
        statuses: for every run, how it ended; None if it has not.
    """

    stack: RunStack
    checks: tuple[tuple[Check, ...], ...]
    statuses: tuple[TrainingStatus | None, ...]

    @classmethod
    def initial(cls, stack: RunStack) -> "TrainingState":
        """Return the state before the first check."""
        runs = stack.answers.shape[0]
        return cls(stack, ((),) * runs, (None,) * runs)

    @property
    def active(self) -> Bool[np.ndarray, " runs"]:
        """Which runs have not ended."""
        return np.array([status is None for status in self.statuses])

    @property
    def checks_done(self) -> int:
        """The number of checks done; the first comes before any step."""
        return max(len(checks) for checks in self.checks)

    def after_check(
        self,
        stack: RunStack,
        checks: tuple[Check, ...],
        statuses: tuple[TrainingStatus | None, ...],
    ) -> "TrainingState":
        """Return the state after one more check of every run, some of which may end at it."""
        active = self.active
        # A diverged run goes back to the last check at which it was finite.
        diverged = [status is TrainingStatus.DIVERGED for status in statuses]
        return TrainingState(
            stack=_select(active & diverged, self.stack, stack),
            checks=tuple(
                (*before, check) if still_active else before
                for before, check, still_active in zip(self.checks, checks, active, strict=True)
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
                "checks": [
                    [check.steps, check.loss if isfinite(check.loss) else None, check.accuracy]
                    for check in checks
                ],
            }
            for status, checks in zip(self.statuses, self.checks, strict=True)
        ]

    def restore(self, arrays: Any, records: Any, protocol: Protocol) -> "TrainingState":
        """Return the state stored in a checkpoint of the training whose initial state is `self`.

        Raises:
            TensorFileError: the records do not fit this training.
        """
        try:
            checks = tuple(tuple(_check(*entry) for entry in run["checks"]) for run in records)
            labels = [run["status"] for run in records]
            statuses = tuple(None if label is None else _STATUSES[label] for label in labels)
        except (KeyError, TypeError, ValueError):
            checks, statuses = (), ()
        restored = replace(self, checks=checks, statuses=statuses)
        if len(checks) != len(self.checks) or not restored._is_consistent(protocol):
            raise TensorFileError("the checkpoint is damaged: its records do not fit this training")
        return replace(restored, stack=eqx.tree_at(trainable_state, self.stack, arrays))

    def _is_consistent(self, protocol: Protocol) -> bool:
        """Return whether the checks are at the protocol's steps, none missing and none extra."""
        done = self.checks_done
        return done <= protocol.checks + 1 and all(
            [check.steps for check in checks] == [*map(protocol.steps_at, range(len(checks)))]
            and (0 < len(checks) <= done if status else len(checks) == done > 0)
            and (status is not None or done <= protocol.checks)
            for checks, status in zip(self.checks, self.statuses, strict=True)
        )


_STATUSES = {status.label: status for status in TrainingStatus}


def _check(steps: int, loss: float | None, accuracy: float) -> Check:
    """Convert a check from its JSON form."""
    return Check(int(steps), nan if loss is None else float(loss), float(accuracy))


def _select(condition: Bool[np.ndarray, " runs"], yes: RunStack, no: RunStack) -> RunStack:
    """Take every run from one of two stacks."""

    def select_leaf(yes: Array, no: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)

    return jax.tree.map(select_leaf, yes, no) if condition.any() else no
