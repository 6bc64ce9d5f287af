"""Transformers trained by a protocol, many runs at once (Figures 4, 7, 8, 9).

Compiled pieces of under a second do the steps (`stack.py`). The loop here, between them, checks,
ends runs, reports, keeps checkpoints and can be interrupted.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from factmem.errors import FactmemError, TensorFileError
from factmem.facts.prompts import PromptDistribution, Prompts
from factmem.progress import Report
from factmem.training.checkpoint import Checkpoint, digest
from factmem.training.optimisers import Settings
from factmem.training.outcome import TrainingOutcome
from factmem.training.protocol import Protocol
from factmem.training.stack import Stack, advance, begin, measure
from factmem.transformer.model import Transformer

__all__ = ["Check", "Run", "TrainedTransformer", "best_run", "runs_of", "train_transformers"]

_SECONDS_AT_ONCE = 0.4
"""Of a compiled piece: Python hears Ctrl-C only between two."""
_SECONDS_BETWEEN_CHECKPOINTS = 1.0


@dataclass(frozen=True)
class Run:
    """One training run of a stack.

    Args:
        start: the transformer to begin with; its embeddings stay as they are.
        asked: the questions. Runs of one stack may differ in the answers alone.
        learning_rate: the optimiser's.
        contest: runs with the same number compete: the first to reach the criterion ends the
            others, for only the best of them counts.
    """

    start: Transformer
    asked: PromptDistribution
    learning_rate: float
    contest: int = 0


@dataclass(frozen=True)
class Check:
    """A look at one run, on the protocol's fixed prompts: its loss is in nats."""

    steps: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class TrainedTransformer:
    """How one training run went.

    Args:
        model: the transformer where the run ended (diverged: where it was last seen well).
        learning_rate: which it had.
        outcome: why it ended.
        checks: loss and accuracy on the way, at the start and after it.
    """

    model: Transformer
    learning_rate: float
    outcome: TrainingOutcome
    checks: tuple[Check, ...]

    @property
    def steps(self) -> int:
        """That were done."""
        return self.checks[-1].steps

    @property
    def best_accuracy(self) -> float:
        """The largest at any check, which is what the paper counts: it flatters."""
        return max(check.accuracy for check in self.checks)


def runs_of(
    start: Transformer, asked: PromptDistribution, protocol: Protocol, contest: int = 0
) -> list[Run]:
    """One run for each learning rate of a protocol."""
    return [Run(start, asked, rate, contest) for rate in protocol.learning_rates]


def best_run(runs: Sequence[TrainedTransformer]) -> TrainedTransformer:
    """The run that counts: the highest accuracy at a check, then the fewest steps."""
    return max(runs, key=lambda run: (run.best_accuracy, -run.steps))


def train_transformers(
    runs: Sequence[Run],
    protocol: Protocol,
    key: Key[Array, ""],
    *,
    report: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> list[TrainedTransformer]:
    """Trains several transformers of one shape at once, on the same prompts.

    Args:
        runs: what to train.
        protocol: how; its learning rates are those of `runs_of`, and each run has its own here.
        key: randomness of all prompts.
        report: told now and then the steps done, and loss and accuracy of the best run.
        checkpoint: a file that is kept up to date. If it exists, training goes on from there, as
            if it had never been interrupted; once training is over, it holds the whole result.

    Returns:
        How the runs went, in their order. They do not disturb each other: one that ends, well or
        not, stays as it was while the others go on.

    Raises:
        FactmemError: runs that do not belong together, or a checkpoint of another training.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.facts import FactTable
        >>> from factmem.transformer import Shape
        >>> asked = PromptDistribution.of(FactTable.random(4, 4, 2), length=8)
        >>> start = Transformer.draw(jr.key(0), Shape(12, 3, 4, width=10), asked.vocabulary)
        >>> protocol = Protocol(learning_rates=(1e-3, 1e-2), steps=500, checks=20, batch=64)
        >>> runs = train_transformers(runs_of(start, asked, protocol), protocol, jr.key(1))
        >>> best_run(runs).learning_rate, best_run(runs).outcome.value
        (0.01, 'The criterion was reached.')
    """
    if not runs:
        raise FactmemError("there is nothing to train: give at least one run")
    training = _begin(runs, protocol)
    keeper = None
    if checkpoint is not None:
        identity = digest(training.stack, runs[0].asked, jr.key_data(key), repr(protocol))
        contests = [run.contest for run in runs]
        keeper = _Keeper(training, Checkpoint(checkpoint, f"{identity}, contests {contests}"))
    try:
        for _ in _checks(training, runs, protocol, key, report):
            if keeper is not None:
                keeper.keep_now_and_then()
    finally:
        # Over, or interrupted: then as it was at the last check.
        if keeper is not None:
            keeper.keep()
    return [_trained(training, number, run) for number, run in enumerate(runs)]


@dataclass
class _Training:
    """Where a training is, at one of its checks."""

    stack: Stack
    checks: list[list[Check]]
    outcomes: list[TrainingOutcome | None]

    @property
    def alive(self) -> Bool[np.ndarray, " runs"]:
        """The runs that have not ended."""
        return np.array([outcome is None for outcome in self.outcomes])

    @property
    def checks_done(self) -> int:
        """The first comes before any step."""
        return max(len(checks) for checks in self.checks)

    @property
    def arrays(self) -> Any:
        """What a checkpoint keeps of the stack: all that steps change."""
        return self.stack.models.weights, self.stack.optimiser

    @property
    def records(self) -> Any:
        """What a checkpoint keeps besides, as JSON data: undefined losses are null."""
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

    def restore(self, arrays: Any, records: Any) -> None:
        """Back to where a checkpoint was.

        Raises:
            TensorFileError: records that are none of these runs.
        """
        try:
            checks = [[_check(*entry) for entry in run["checks"]] for run in records]
            outcomes = [run["outcome"] for run in records]
            ended = [None if name is None else TrainingOutcome[name] for name in outcomes]
        except (KeyError, TypeError, ValueError):
            checks, ended = [], []
        if len(checks) != len(self.checks) or not all(checks):
            raise TensorFileError(
                "the checkpoint is damaged: its records are not those of the runs"
            )
        self.stack = eqx.tree_at(
            lambda stack: (stack.models.weights, stack.optimiser), self.stack, arrays
        )
        self.checks, self.outcomes = checks, ended


class _Keeper:
    """Keeps a training's checkpoint up to date, and begins with what is in it."""

    def __init__(self, training: _Training, file: Checkpoint) -> None:
        self.training, self.file = training, file
        if file.exists():
            training.restore(*file.load(training.arrays))
        self.kept, self.when = training.checks_done, time.monotonic()

    def keep_now_and_then(self) -> None:
        """Writes unless that was done a moment ago."""
        if time.monotonic() - self.when >= _SECONDS_BETWEEN_CHECKPOINTS:
            self.keep()

    def keep(self) -> None:
        """Writes if there is anything new."""
        if self.training.checks_done > self.kept:
            self.file.save(self.training.arrays, self.training.records)
            self.kept, self.when = self.training.checks_done, time.monotonic()


def _check(steps: int, loss: float | None, accuracy: float) -> Check:
    """A check as it stands in a checkpoint."""
    return Check(int(steps), nan if loss is None else float(loss), float(accuracy))


def _begin(runs: Sequence[Run], protocol: Protocol) -> _Training:
    models, answers = _stacked([run.start for run in runs]), _answers(runs)
    if models.vocabulary != runs[0].asked.vocabulary:
        raise FactmemError("a start and its questions have different vocabularies")
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(models)):
        raise FactmemError("a start holds NaN or infinite numbers")
    count, dtype = len(runs), models.weights.query.dtype
    settings = Settings(
        learning_rate=jnp.asarray([run.learning_rate for run in runs], dtype),
        momentum=jnp.full(count, protocol.momentum, dtype),
        memory=jnp.full(count, protocol.memory, dtype),
        horizon=jnp.full(count, protocol.steps, dtype),
    )
    stack = begin(models, settings, answers, protocol.recipe)
    return _Training(stack, [[] for _ in runs], [None] * count)


def _checks(
    training: _Training,
    runs: Sequence[Run],
    protocol: Protocol,
    key: Key[Array, ""],
    report: Report | None,
) -> Iterator[None]:
    """Trains from check to check until every run has ended; `training` is kept up to date."""
    asked = runs[0].asked
    batch_key, test_key = jr.split(key)
    tests = _sample(asked, test_key, protocol.prompts)
    pace = _Pace()
    while training.alive.any():
        check, stack = training.checks_done, training.stack
        steps = protocol.steps_at(max(check - 1, 0))
        for piece in pace.pieces(protocol.steps_at(check) - steps):
            stack = advance(
                stack,
                asked,
                batch_key,
                jnp.asarray(steps, jnp.int32),
                jnp.asarray(piece, jnp.int32),
                jnp.asarray(training.alive),
                protocol.recipe,
                together=jax.default_backend() != "cpu",
            )
            jax.block_until_ready(stack)
            steps += piece
            _tell(report, training, steps)
        _look(training, stack, steps, tests, runs, protocol)
        yield


def _look(
    training: _Training,
    stack: Stack,
    steps: int,
    tests: Prompts,
    runs: Sequence[Run],
    protocol: Protocol,
) -> None:
    """Measures the runs that are alive, and ends those that should."""
    loss, accuracy, finite = (np.asarray(part) for part in measure(stack, tests))
    alive = training.alive
    # What diverged goes back to where it was last seen well.
    training.stack = _chosen(alive & ~finite, training.stack, stack)
    for run in np.flatnonzero(alive):
        training.checks[run].append(Check(steps, float(loss[run]), float(accuracy[run])))
        if not finite[run]:
            training.outcomes[run] = TrainingOutcome.DIVERGED
        elif accuracy[run] > protocol.criterion:
            training.outcomes[run] = TrainingOutcome.REACHED
        elif steps >= protocol.steps:
            training.outcomes[run] = TrainingOutcome.STEPS
    won = {
        run.contest
        for run, outcome in zip(runs, training.outcomes, strict=True)
        if outcome is TrainingOutcome.REACHED
    }
    for number, run in enumerate(runs):
        if training.outcomes[number] is None and run.contest in won:
            training.outcomes[number] = TrainingOutcome.OVERTAKEN


class _Pace:
    """How many steps fit into one compiled piece, from how long the last one took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.steps = clock, 1

    def pieces(self, steps: int) -> Iterator[int]:
        """Cuts steps into pieces; the time until the next is asked for is the piece's."""
        while steps:
            piece = min(self.steps, steps)
            start = self.clock()
            yield piece
            fit = piece * _SECONDS_AT_ONCE / max(self.clock() - start, 1e-9)
            self.steps = max(1, min(8 * self.steps, round(fit)))
            steps -= piece


def _trained(training: _Training, number: int, run: Run) -> TrainedTransformer:
    outcome = training.outcomes[number]
    assert outcome is not None, "every run has ended"
    return TrainedTransformer(
        model=jax.tree.map(lambda leaf: leaf[number], training.stack.models),
        learning_rate=run.learning_rate,
        outcome=outcome,
        checks=tuple(training.checks[number]),
    )


def _tell(report: Report | None, training: _Training, steps: int) -> None:
    if report is not None:
        last = [checks[-1] for checks in training.checks if checks]
        best = max(last, key=lambda check: check.accuracy)
        report(steps, loss=best.loss, accuracy=best.accuracy)


# ---- stacks --------------------------------------------------------------------------------------


def _stacked(models: Sequence[Transformer]) -> Transformer:
    try:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    except (ValueError, TypeError):
        raise FactmemError("runs that are trained together have the same shape") from None


def _answers(runs: Sequence[Run]) -> Int[Array, "runs facts"]:
    """Every run's answers, of which the questions must be the same."""

    def questions(asked: PromptDistribution) -> PromptDistribution:
        return eqx.tree_at(lambda asked: asked.fact_answers, asked, asked.fact_subjects)

    first = questions(runs[0].asked)
    for run in runs:
        if not eqx.tree_equal(first, questions(run.asked)):
            raise FactmemError("runs that are trained together are asked the same questions")
    return jnp.stack([run.asked.fact_answers for run in runs])


def _chosen(first: np.ndarray, yes: Stack, no: Stack) -> Stack:
    """For every run one of two stacks."""

    def of_leaf(yes: Array, no: Array) -> Array:
        return jnp.where(first.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)

    return jax.tree.map(of_leaf, yes, no) if first.any() else no


_sample = eqx.filter_jit(lambda asked, key, count: asked.sample(key, count, form="counts"))
