"""Transformers trained by a protocol, many runs at once (Figures 4, 7, 8, 9).

Compiled pieces of under a second do the steps (`stack.py`). The loop here, between them, checks,
ends runs, reports, keeps checkpoints and can be interrupted.
"""

import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.facts.prompts import PromptDistribution
from factmem.memories.decoding import decodable
from factmem.training.checkpoint import Checkpoint, digest
from factmem.training.optimizers import Settings
from factmem.training.padding import PaddedSizes
from factmem.training.protocol import Protocol
from factmem.training.stack import Stack, advance, begin, measure
from factmem.training.state import Check, Training
from factmem.training.status import TrainingOutcome
from factmem.transformer.model import Transformer

__all__ = ["Run", "TrainedTransformer", "best_run", "runs_for_learning_rates", "train_transformers"]

_SECONDS_AT_ONCE = 0.4
"""Of a compiled piece: Python hears Ctrl-C only between two."""
_SECONDS_BETWEEN_CHECKPOINTS = 1.0


@dataclass(frozen=True)
class Run:
    """One training run of a stack.

    Args:
        start: the transformer to begin with; its embeddings stay as they are.
        asked: the questions. IndependentTasks of one stack may differ in the answers alone.
        learning_rate: the optimizer's.
        contest: runs of the same contest compete: the first to reach the criterion ends the
            others, for only the best of them counts. None competes with nobody.
    """

    start: Transformer
    asked: PromptDistribution
    learning_rate: float
    contest: Hashable | None = None


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
    def success(self) -> bool:
        """Whether the criterion was reached."""
        return self.outcome is TrainingOutcome.REACHED

    @property
    def best_accuracy(self) -> float:
        """The largest at any check, which is what the paper counts: it flatters."""
        return max(check.accuracy for check in self.checks)


def runs_for_learning_rates(
    start: Transformer, asked: PromptDistribution, protocol: Protocol
) -> list[Run]:
    """One run for each learning rate of a protocol, in a contest of their own."""
    contest = object()
    return [Run(start, asked, rate, contest) for rate in protocol.learning_rates]


def best_run(runs: Sequence[TrainedTransformer]) -> TrainedTransformer:
    """The run that counts: one that succeeded, the highest accuracy, then the fewest steps."""
    return max(runs, key=lambda run: (run.success, run.best_accuracy, -run.steps))


def train_transformers(
    runs: Sequence[Run],
    protocol: Protocol,
    key: Key[Array, ""],
    *,
    report: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    room: PaddedSizes | None = None,
) -> list[TrainedTransformer]:
    """Trains several transformers of one shape at once, on the same prompts.

    Args:
        runs: what to train.
        protocol: how; its learning rates are those of `runs_for_learning_rates`, and each run has its own here.
        key: randomness of all prompts.
        report: told now and then the steps done, and loss and accuracy of the best run.
        checkpoint: a file that is kept up to date. If it exists, training goes on from there, as
            if it had never been interrupted; once training is over, it holds the whole result.
        room: the sizes to compile for, so that what is compiled serves other tables too; those of
            this one if left out.

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
        >>> runs = train_transformers(runs_for_learning_rates(start, asked, protocol), protocol, jr.key(1))
        >>> best_run(runs).learning_rate, best_run(runs).outcome.value
        (0.01, 'The criterion was reached.')
    """
    if not runs:
        raise FactmemError("there is nothing to train: give at least one run")
    asked = runs[0].asked if room is None else room.questions(runs[0].asked)
    training = Training.before(_stack(runs, protocol, room))
    keeper = None
    if checkpoint is not None:
        identity = digest(training.stack, asked, jr.key_data(key), repr(protocol), _contests(runs))
        keeper = _Keeper(Checkpoint(checkpoint, identity))
        training = keeper.found(training, protocol)
    try:
        for training in _checks(training, runs, asked, protocol, key, report):  # noqa: B020
            if keeper is not None:
                keeper.keep_now_and_then(training)
    except BaseException:
        # Interrupted: as it was at the last check. Why it ended matters more than a full disk.
        with suppress(OSError):
            if keeper is not None:
                keeper.keep(training)
        raise
    if keeper is not None:
        keeper.keep(training)
    return [_result(training, number, run) for number, run in enumerate(runs)]


class _Keeper:
    """Keeps a checkpoint up to date."""

    def __init__(self, file: Checkpoint) -> None:
        self.file = file
        self.kept, self.when = 0, -inf

    def found(self, start: Training, protocol: Protocol) -> Training:
        """What the file has of this training, or its start."""
        if self.file.exists():
            start = start.restored(*self.file.load(start.arrays), protocol)
            self.kept = start.checks_done
        return start

    def keep_now_and_then(self, training: Training) -> None:
        """Writes at the first check, so that what cannot be written is known early, then rarely."""
        if time.monotonic() - self.when >= _SECONDS_BETWEEN_CHECKPOINTS:
            self.keep(training)

    def keep(self, training: Training) -> None:
        """Writes if there is anything new."""
        if training.checks_done > self.kept:
            self.file.save(training.arrays, training.records)
            self.kept, self.when = training.checks_done, time.monotonic()


def _stack(runs: Sequence[Run], protocol: Protocol, room: PaddedSizes | None = None) -> Stack:
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
    possible = None
    if room is not None:
        models = _stacked([room.model(run.start) for run in runs])
        answers = jnp.stack([room.questions(run.asked).fact_answers for run in runs])
        possible = jnp.stack([room.answers(run.asked) for run in runs])
    return begin(models, settings, answers, protocol.recipe, possible)


def _checks(
    training: Training,
    runs: Sequence[Run],
    asked: PromptDistribution,
    protocol: Protocol,
    key: Key[Array, ""],
    report: Report | None,
) -> Iterator[Training]:
    """Trains from check to check, until every run has ended."""
    batch_key, test_key = jr.split(key)
    tests = _sample(asked, test_key, protocol.prompts)
    pace, allowed = _Pace(), _allowed(runs, tests.facts, protocol)
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
        loss, accuracy, finite = (np.asarray(part).tolist() for part in measure(stack, tests))
        looks = tuple(Check(steps, *seen) for seen in zip(loss, accuracy, strict=True))
        outcomes = _outcomes(training, looks, finite, allowed, runs, protocol)
        training = training.after(stack, looks, outcomes)
        yield training
        _tell(report, training, steps)


def _outcomes(
    training: Training,
    looks: Sequence[Check],
    finite: Sequence[bool],
    allowed: Sequence[float],
    runs: Sequence[Run],
    protocol: Protocol,
) -> tuple[TrainingOutcome | None, ...]:
    """How each run ends at a check that shows this; those that ended before do not ask."""

    def alone(
        before: Sequence[Check], look: Check, well: bool, most: float
    ) -> TrainingOutcome | None:
        if not well:
            return TrainingOutcome.DIVERGED
        if look.accuracy > protocol.criterion:
            return TrainingOutcome.REACHED
        if look.steps >= protocol.steps:
            return TrainingOutcome.STEPS
        best = max(check.accuracy for check in (*before, look))
        hopeless = most <= protocol.criterion or protocol.is_hopeless(look.steps, best)
        return TrainingOutcome.HOPELESS if hopeless else None

    found = [alone(*seen) for seen in zip(training.checks, looks, finite, allowed, strict=True)]
    contests = _contests(runs)
    won = {
        contest
        for contest, outcome in zip(contests, found, strict=True)
        if outcome is TrainingOutcome.REACHED
    }
    return tuple(
        TrainingOutcome.OVERTAKEN if outcome is None and contest in won else outcome
        for contest, outcome in zip(contests, found, strict=True)
    )


def _allowed(runs: Sequence[Run], facts: Int[Array, " prompts"], protocol: Protocol) -> list[float]:
    """The share of test prompts that each run's embeddings let any weights get right.

    Looked at only where hopeless runs are ended: this is known before the first step.
    """
    if not protocol.hopeless:
        return [1.0] * len(runs)
    tables: dict[int, Bool[np.ndarray, " outputs"]] = {}  # runs of one start share its embeddings
    shares = []
    for run in runs:
        outputs = run.start.embeddings.outputs
        if id(outputs) not in tables:
            tables[id(outputs)] = decodable(np.asarray(outputs))
        right = run.start.targets(run.asked.fact_answers[facts])
        shares.append(float(np.mean(tables[id(outputs)][np.asarray(right)])))
    return shares


def _contests(runs: Sequence[Run]) -> list[int]:
    """For every run the number of the first that it competes with: itself, if with none."""
    names = [object() if run.contest is None else run.contest for run in runs]
    return [names.index(name) for name in names]


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


def _result(training: Training, number: int, run: Run) -> TrainedTransformer:
    outcome = training.outcomes[number]
    assert outcome is not None, "every run has ended"

    def own(leaf: Array, start: Array) -> Array:
        """Without what there was only room for."""
        return leaf[number][tuple(slice(size) for size in start.shape)]

    weights = jax.tree.map(own, training.stack.models.weights, run.start.weights)
    return TrainedTransformer(
        model=eqx.tree_at(lambda model: model.weights, run.start, weights),
        learning_rate=run.learning_rate,
        outcome=outcome,
        checks=training.checks[number],
    )


def _tell(report: Report | None, training: Training, steps: int) -> None:
    if report is not None:
        last = [checks[-1] for checks in training.checks]
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


_sample = eqx.filter_jit(lambda asked, key, count: asked.sample(key, count, form="counts"))
