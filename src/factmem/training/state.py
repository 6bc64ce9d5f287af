"""Where a training is, at one of its checks; in memory and as a checkpoint keeps it."""

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
from factmem.training.stack import Stack, trained
from factmem.training.status import TrainingOutcome

__all__ = ["Check", "Training"]


@dataclass(frozen=True)
class Check:
    """A look at one run, on the protocol's fixed prompts: its loss is in nats."""

    steps: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Training:
    """Several runs at a check. Never changed, only replaced: an interruption finds a whole one.

    Args:
        stack: the runs; those that have ended as they were then.
        checks: of every run, so far.
        outcomes: how it ended; None if it has not.
    """

    stack: Stack
    checks: tuple[tuple[Check, ...], ...]
    outcomes: tuple[TrainingOutcome | None, ...]

    @classmethod
    def before(cls, stack: Stack) -> "Training":
        """Before the first check."""
        runs = stack.answers.shape[0]
        return cls(stack, ((),) * runs, (None,) * runs)

    @property
    def alive(self) -> Bool[np.ndarray, " runs"]:
        """The runs that have not ended."""
        return np.array([outcome is None for outcome in self.outcomes])

    @property
    def checks_done(self) -> int:
        """The first comes before any step."""
        return max(len(checks) for checks in self.checks)

    def after(
        self,
        stack: Stack,
        checks: tuple[Check, ...],
        outcomes: tuple[TrainingOutcome | None, ...],
    ) -> "Training":
        """At the next check: what it showed of every run, and who has ended now."""
        alive = self.alive
        # What diverged goes back to where it was last seen well.
        diverged = [outcome is TrainingOutcome.DIVERGED for outcome in outcomes]
        return Training(
            stack=_either(alive & diverged, self.stack, stack),
            checks=tuple(
                (*before, check) if still else before
                for before, check, still in zip(self.checks, checks, alive, strict=True)
            ),
            outcomes=tuple(
                now if still else before
                for before, now, still in zip(self.outcomes, outcomes, alive, strict=True)
            ),
        )

    # ---- checkpoints ---------------------------------------------------------------------------

    @property
    def arrays(self) -> Any:
        """What a checkpoint keeps of the stack."""
        return trained(self.stack)

    @property
    def records(self) -> list[dict[str, Any]]:
        """What it keeps besides, as JSON data: undefined losses are null."""
        return [
            {
                "outcome": None if outcome is None else outcome.name,
                "checks": [
                    [check.steps, check.loss if isfinite(check.loss) else None, check.accuracy]
                    for check in checks
                ],
            }
            for outcome, checks in zip(self.outcomes, self.checks, strict=True)
        ]

    def restored(self, arrays: Any, records: Any, protocol: Protocol) -> "Training":
        """The training that a checkpoint kept; `self` is the same one before it began.

        Raises:
            TensorFileError: records that are none of such a training.
        """
        try:
            checks = tuple(tuple(_check(*entry) for entry in run["checks"]) for run in records)
            names = [run["outcome"] for run in records]
            ended = tuple(None if name is None else TrainingOutcome[name] for name in names)
        except (KeyError, TypeError, ValueError):
            checks, ended = (), ()
        found = replace(self, checks=checks, outcomes=ended)
        if len(checks) != len(self.checks) or not found._is_possible(protocol):
            raise TensorFileError("the checkpoint is damaged: its records are of no such training")
        return replace(found, stack=eqx.tree_at(trained, self.stack, arrays))

    def _is_possible(self, protocol: Protocol) -> bool:
        """Whether checks are where the protocol has them, and none is missing or too many."""
        done = self.checks_done
        return done <= protocol.checks + 1 and all(
            [check.steps for check in checks] == [*map(protocol.steps_at, range(len(checks)))]
            and (0 < len(checks) <= done if outcome else len(checks) == done > 0)
            and (outcome is not None or done <= protocol.checks)
            for checks, outcome in zip(self.checks, self.outcomes, strict=True)
        )


def _check(steps: int, loss: float | None, accuracy: float) -> Check:
    """A check as it stands in a checkpoint."""
    return Check(int(steps), nan if loss is None else float(loss), float(accuracy))


def _either(first: Bool[np.ndarray, " runs"], yes: Stack, no: Stack) -> Stack:
    """For every run one of two stacks."""

    def of_leaf(yes: Array, no: Array) -> Array:
        return jnp.where(first.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)

    return jax.tree.map(of_leaf, yes, no) if first.any() else no
