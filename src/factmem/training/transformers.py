"""Training of transformers by a protocol, many runs at once.

The steps run in compiled calls of under a second (`stack.py`). The loop around them checks the
runs, ends them, reports progress, writes checkpoints and can be interrupted.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from factmem._core.checkpoint import Checkpoint, digest
from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.facts.prompts import PromptDistribution
from factmem.memories.decoding import decodable
from factmem.training.hard_noise import hard_noise_key
from factmem.training.hyperparameters import Hyperparameters
from factmem.training.padding import PaddedSizes
from factmem.training.protocol import PAPER, Protocol
from factmem.training.runs import TrainingResult, TrainingRun, best_run, runs_for_learning_rates
from factmem.training.stack import RunStack, advance, evaluate, init_stack, prompt_form
from factmem.training.state import Evaluation, TrainingState
from factmem.training.status import TrainingStatus
from factmem.transformer.model import Transformer
from factmem.transformer.prompt_forms import sample_prompts
from factmem.transformer.shape import Shape

__all__ = ["train", "train_transformers"]

_CHUNK_SECONDS = 0.4
"""Target duration of one compiled call. Python handles Ctrl-C only between calls."""
_SECONDS_BETWEEN_CHECKPOINTS = 1.0


def train(
    prompts: PromptDistribution,
    shape: Shape,
    protocol: Protocol = PAPER,
    *,
    key: Key[Array, ""],
    report: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> TrainingResult:
    """Train a transformer from a random start, and return the best learning rate's result.

    Args:
        prompts: the facts and the prompts about them.
        shape: the transformer's sizes.
        protocol: how to train; there is one run for each of its learning rates.
        key: random key for the start and the prompts.
        report: see `train_transformers`.
        checkpoint: see `train_transformers`.

    Raises:
        FactmemError: the checkpoint belongs to another training.

    Examples:
        >>> from factmem.facts import FactTable
        >>> prompts = PromptDistribution.from_table(FactTable.random(4, 4, 2), length=8)
        >>> protocol = Protocol(learning_rates=(1e-3, 1e-2), steps=500, batch_size=64)
        >>> result = train(prompts, Shape(12, 3, 4, width=10), protocol, key=jr.key(0))
        >>> result.learning_rate, result.status.label
        (0.01, 'criterion_reached')
    """
    start_key, prompt_key = jr.split(key)
    start = Transformer.draw(shape, prompts.vocabulary, key=start_key)
    runs = runs_for_learning_rates(start, prompts, protocol)
    return best_run(
        train_transformers(runs, protocol, key=prompt_key, report=report, checkpoint=checkpoint)
    )


def train_transformers(
    runs: Sequence[TrainingRun],
    protocol: Protocol,
    *,
    key: Key[Array, ""],
    padding: PaddedSizes | None = None,
    report: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> list[TrainingResult]:
    """Train several transformers of one shape together, on the same prompts.

    Args:
        runs: what to train.
        protocol: how to train. Its learning rates are not used: each run has its own.
        key: random key for all prompts.
        padding: the sizes to compile for, so that other tables can use the same compiled program;
            None for no padding.
        report: called every second or so with the steps done, and the loss and accuracy of the
            best run.
        checkpoint: a file for the training state. If it exists, training resumes from it as if it
            had never been interrupted. At the end it holds the complete result.

    Returns:
        One result for each run, in order. The runs are independent: a run that ends, for whatever
        reason, keeps its state while the others continue.

    Raises:
        FactmemError: the runs cannot be trained together, or the checkpoint belongs to another
            training.

    Examples:
        >>> from factmem.facts import FactTable
        >>> prompts = PromptDistribution.from_table(FactTable.random(4, 4, 2), length=8)
        >>> start = Transformer.draw(
        ...     Shape(12, 3, 4, width=10), prompts.vocabulary, key=jr.key(0)
        ... )
        >>> protocol = Protocol(learning_rates=(1e-3, 1e-2), steps=500, batch_size=64)
        >>> runs = runs_for_learning_rates(start, prompts, protocol)
        >>> results = train_transformers(runs, protocol, key=jr.key(1))
        >>> best_run(results).learning_rate, best_run(results).status.label
        (0.01, 'criterion_reached')
    """
    if not runs:
        raise FactmemError("training needs at least one run, got none")
    prompts = runs[0].prompts if padding is None else padding.pad_prompts(runs[0].prompts)
    state = TrainingState.initial(_stack_runs(runs, protocol, padding))
    writer = None
    if checkpoint is not None:
        identity = digest(state.stack, prompts, jr.key_data(key), repr(protocol), _groups(runs))
        writer = _CheckpointWriter(Checkpoint(checkpoint, identity))
        state = writer.load(state, protocol)
    try:
        for state in _evaluations(state, runs, prompts, protocol, key, report):  # noqa: B020
            if writer is not None:
                writer.save_if_due(state)
    except BaseException:
        # Interrupted: save the last evaluation. A full disk must not hide the interruption.
        with suppress(OSError):
            if writer is not None:
                writer.save(state)
        raise
    if writer is not None:
        writer.save(state)
    return [_result(state, index, run) for index, run in enumerate(runs)]


class _CheckpointWriter:
    """Writes a checkpoint when there is a new state, but not too often."""

    def __init__(self, file: Checkpoint) -> None:
        self.file = file
        self.evaluations_saved, self.last_save = 0, -inf

    def load(self, initial: TrainingState, protocol: Protocol) -> TrainingState:
        """Return the state in the file, or the initial state if there is no file."""
        if not self.file.exists():
            return initial
        state = initial.restore(*self.file.load(initial.arrays), protocol)
        self.evaluations_saved = state.evaluations_done
        return state

    def save_if_due(self, state: TrainingState) -> None:
        """Save at the first evaluation, so that an unwritable file fails early, then rarely."""
        if time.monotonic() - self.last_save >= _SECONDS_BETWEEN_CHECKPOINTS:
            self.save(state)

    def save(self, state: TrainingState) -> None:
        """Save the state if it is new."""
        if state.evaluations_done > self.evaluations_saved:
            self.file.save(state.arrays, state.records)
            self.evaluations_saved, self.last_save = state.evaluations_done, time.monotonic()


# ---- the loop over evaluations -------------------------------------------------------------------


def _evaluations(
    state: TrainingState,
    runs: Sequence[TrainingRun],
    prompts: PromptDistribution,
    protocol: Protocol,
    key: Key[Array, ""],
    report: Report | None,
) -> Iterator[TrainingState]:
    """Train from evaluation to evaluation until every run has ended."""
    batch_key, test_key = jr.split(key)
    form = prompt_form(state.stack, prompts)
    test_batch = _sample_prompts(prompts, protocol.test_prompts, form, key=test_key)
    chunk_sizer = _ChunkSizer()
    max_accuracies = _max_accuracies(runs, test_batch.fact_ids, protocol)
    while state.active.any():
        evaluation, stack = state.evaluations_done, state.stack
        steps = protocol.steps_at(max(evaluation - 1, 0))
        for chunk in chunk_sizer.chunks(protocol.steps_at(evaluation) - steps):
            stack = advance(
                stack,
                prompts,
                jnp.asarray(steps, jnp.int32),
                jnp.asarray(chunk, jnp.int32),
                jnp.asarray(state.active),
                protocol.step_config,
                vectorize=jax.default_backend() != "cpu",
                key=batch_key,
            )
            jax.block_until_ready(stack)
            steps += chunk
            _report_progress(report, state, steps)
        loss, accuracy, finite = (
            np.asarray(array).tolist()
            for array in evaluate(stack, test_batch, prompts, noise_key=hard_noise_key(test_key))
        )
        evaluations = tuple(Evaluation(steps, *pair) for pair in zip(loss, accuracy, strict=True))
        statuses = _statuses(state, evaluations, finite, max_accuracies, runs, protocol)
        state = state.after_evaluation(stack, evaluations, statuses)
        yield state
        _report_progress(report, state, steps)


def _statuses(
    state: TrainingState,
    evaluations: Sequence[Evaluation],
    finite: Sequence[bool],
    max_accuracies: Sequence[float],
    runs: Sequence[TrainingRun],
    protocol: Protocol,
) -> tuple[TrainingStatus | None, ...]:
    """Return how each run ends at an evaluation, or None; ignored for runs that have ended."""

    def run_status(
        before: Sequence[Evaluation], evaluation: Evaluation, finite: bool, max_accuracy: float
    ) -> TrainingStatus | None:
        if not finite:
            return TrainingStatus.DIVERGED
        if evaluation.accuracy > protocol.criterion:
            return TrainingStatus.CRITERION_REACHED
        if evaluation.steps >= protocol.steps:
            return TrainingStatus.STEP_LIMIT
        best = max(evaluation.accuracy for evaluation in (*before, evaluation))
        unreachable = max_accuracy <= protocol.criterion < 1
        if unreachable or protocol.stops_early(evaluation.steps, best):
            return TrainingStatus.STOPPED_EARLY
        return None

    inputs = zip(state.evaluations, evaluations, finite, max_accuracies, strict=True)
    statuses = list(zip(_groups(runs), (run_status(*args) for args in inputs), strict=True))
    succeeded = {group for group, status in statuses if status is TrainingStatus.CRITERION_REACHED}
    return tuple(
        TrainingStatus.GROUP_SUCCEEDED if status is None and group in succeeded else status
        for group, status in statuses
    )


def _max_accuracies(
    runs: Sequence[TrainingRun], fact_ids: Int[Array, " prompts"], protocol: Protocol
) -> list[float]:
    """Return the accuracy on the test prompts that each run's embeddings allow with any weights.

    It is computed only if the protocol stops runs early; otherwise it is 1.
    """
    if not protocol.early_stopping:
        return [1.0] * len(runs)
    tables: dict[int, Bool[np.ndarray, " outputs"]] = {}  # runs of one start share its embeddings
    accuracies = []
    for run in runs:
        outputs = run.initial_model.embeddings.outputs
        if id(outputs) not in tables:
            tables[id(outputs)] = decodable(np.asarray(outputs))
        targets = run.initial_model.targets(run.prompts.fact_answers[fact_ids])
        accuracies.append(float(np.mean(tables[id(outputs)][np.asarray(targets)])))
    return accuracies


def _groups(runs: Sequence[TrainingRun]) -> list[int]:
    """Return the index of the first run of each run's group."""
    groups = [object() if run.group is None else run.group for run in runs]
    return [groups.index(group) for group in groups]


class _ChunkSizer:
    """Chooses how many steps fit into one compiled call, from the duration of the last one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.steps = clock, 1

    def chunks(self, steps: int) -> Iterator[int]:
        """Split steps into chunks, timing each until the caller requests the next one."""
        while steps:
            chunk = min(self.steps, steps)
            start = self.clock()
            yield chunk
            fitting = chunk * _CHUNK_SECONDS / max(self.clock() - start, 1e-9)
            self.steps = max(1, min(8 * self.steps, round(fitting)))
            steps -= chunk


def _report_progress(report: Report | None, state: TrainingState, steps: int) -> None:
    if report is not None:
        last = [evaluations[-1] for evaluations in state.evaluations]
        best = max(last, key=lambda evaluation: evaluation.accuracy)
        report(steps, loss=best.loss, accuracy=best.accuracy)


def _result(state: TrainingState, index: int, run: TrainingRun) -> TrainingResult:
    status = state.statuses[index]
    assert status is not None, "every run has ended"

    def without_padding(leaf: Array, start: Array) -> Array:
        return leaf[index][tuple(slice(size) for size in start.shape)]

    weights = jax.tree.map(without_padding, state.stack.models.weights, run.initial_model.weights)
    return TrainingResult(
        model=eqx.tree_at(lambda model: model.weights, run.initial_model, weights),
        status=status,
        learning_rate=run.learning_rate,
        evaluations=state.evaluations[index],
    )


# ---- stacking ------------------------------------------------------------------------------------


def _stack_runs(
    runs: Sequence[TrainingRun], protocol: Protocol, padding: PaddedSizes | None = None
) -> RunStack:
    models, answers = _stack_models([run.initial_model for run in runs]), _stack_answers(runs)
    if models.vocabulary != runs[0].prompts.vocabulary:
        raise FactmemError(
            "the initial model and the prompts of a run must have the same vocabulary"
        )
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(models)):
        raise FactmemError("the initial model of a run must be finite, got NaN or infinity")
    count, dtype = len(runs), models.weights.query.dtype
    hyperparameters = Hyperparameters(
        learning_rate=jnp.asarray([run.learning_rate for run in runs], dtype),
        momentum=jnp.full(count, protocol.momentum, dtype),
        beta2=jnp.full(count, protocol.beta2, dtype),
        decay_steps=jnp.full(count, protocol.steps, dtype),
        hard_noise=jnp.full(count, protocol.hard_noise, dtype) if protocol.hard_noise else None,
    )
    answer_mask = None
    if padding is not None:
        models = _stack_models([padding.pad_model(run.initial_model) for run in runs])
        answers = jnp.stack([padding.pad_prompts(run.prompts).fact_answers for run in runs])
        answer_mask = jnp.stack([padding.answer_mask(run.prompts) for run in runs])
    return init_stack(models, hyperparameters, answers, protocol.step_config, answer_mask)


def _stack_models(models: Sequence[Transformer]) -> Transformer:
    try:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    except (ValueError, TypeError):
        raise FactmemError("runs that are trained together must have the same shape") from None


def _stack_answers(runs: Sequence[TrainingRun]) -> Int[Array, "runs facts"]:
    """Stack every run's answers, after checking that the prompts are otherwise the same."""

    def without_answers(prompts: PromptDistribution) -> PromptDistribution:
        return eqx.tree_at(lambda it: it.fact_answers, prompts, prompts.fact_subjects)

    first = without_answers(runs[0].prompts)
    for run in runs:
        if not eqx.tree_equal(first, without_answers(run.prompts)):
            raise FactmemError(
                "runs that are trained together must have the same prompts except for the answers"
            )
    return jnp.stack([run.prompts.fact_answers for run in runs])


_sample_prompts = eqx.filter_jit(sample_prompts)
