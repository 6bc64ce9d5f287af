"""The compiler's fit of values, outputs and MLP by minibatches, for large tables.

The cost of a step does not depend on the number of facts or answers. A step takes a batch of facts
on their known inputs and lowers the cross-entropy over three sets of answers: the right one, random
ones that the batch shares, and the fact's hardest ones. The hardest answers come from an exact pass
over all answers, several times in a round: answers are split into random groups, and each group
contributes the one with the highest logit.

The optimizer is Muon: momentum, with each matrix replaced by (nearly) the nearest orthogonal one.
The learning rate falls linearly to zero in each round. If facts are left that are not certified,
another round follows. If they are few, half of each of its batches is drawn from them, and every
fact has to have a margin a little larger than what its certificate takes off for rounding errors
and noise.

Every random number follows from the seed, the round and the step, so that an interrupted fit goes
on as if it had never been interrupted.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from factmem._core.checkpoint import Checkpoint, digest
from factmem._core.lbfgs import FitStatus
from factmem._core.progress import Report
from factmem.transformer.compiler.fit import (
    FitData,
    FittedWeights,
    WeightsFit,
    balance,
    model_outputs,
)

__all__ = ["Schedule", "fit_in_batches", "hardest_answers", "orthogonalize", "sampled_answers"]

_LEARNING_RATE = 1e-2
"""At 9,646 facts and 0.83 bits a parameter, 60 epochs left 180 facts wrong with 1e-2, 488 with 5e-3
and 1,022 with 2e-2."""
_BIAS_RATE = 0.1
_MOMENTUM, _BIAS_DECAY = 0.95, 0.99
_WARM_UP = 0.02
_MLP_OUT_RATE = 5.0
"""The rate of the MLP's second matrix is this times d/m, at most 1. With 1 instead, 54,031 facts in
899,840 parameters had 50% right after 60 epochs; with this rule 2 were wrong after 40."""
_LOGIT_SCALE = 0.1
"""Logits have about this standard deviation times √d at the start. At 27,430 facts 40 epochs left 4
facts wrong with 0.1 and 68 with 0.3."""
_MARGIN_FACTOR, _MARGIN_STEP = 1.5, 0.5
"""The margin that facts need in a finish, relative to what the last certificate took off, and its
increase from finish to finish: each changes what the next certificate takes off."""
_VERY_FEW, _GENTLE = 1e-3, 0.3
"""With at most this fraction of facts left a finish is a third as long, for each is in every batch,
and its rate 0.3 times as large: with the whole rate it broke more of 54,031 facts than it mended (2
became 9)."""
_ALL_ANSWERS = 1024
"""Up to this number of answers the cross-entropy is over all of them."""
_MIN_SAMPLED, _MAX_SAMPLED = 512, 2048
_HARD_ANSWERS = 16
_REFRESHES_PER_ROUND = 8
_STEP_FLOPS = 2e10
"""Floating-point operations of one compiled call: a fraction of a second, so that Ctrl-C works."""
_BLOCK_ENTRIES = 2**21
"""Logits of a block in the exact pass. 2²³ leave the cache: 12 s instead of 5 for 54,031 facts and
27,992 answers."""
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5


@dataclass(frozen=True)
class Schedule:
    """How long a fit by minibatches is.

    Args:
        batch_size: facts in a step.
        epochs: passes over all facts in the first round.
        max_rounds: the number of rounds after which the fit gives up.
        finish_epochs: passes in a round that follows when few facts are left.
        finish_rate: the learning rate of such a round, relative to that of the first.
        finish_decay: the factor of that rate from one such round to the next.
        few: the fraction of facts not certified below which they are few.
    """

    batch_size: int
    epochs: int
    max_rounds: int = 10
    finish_epochs: int = 15
    finish_rate: float = 0.3
    finish_decay: float = 0.6
    few: float = 0.1

    @classmethod
    def default(cls, facts: int, load: float) -> "Schedule":
        """Return a schedule that suits a number of facts and bits per parameter."""
        batch_size = min(512, max(64, 2 ** round(math.log2(max(facts, 1) / 40))))
        return cls(batch_size, round(40 * max(1.0, load / 0.6) ** 2))


class _State(NamedTuple):
    """Weights, the momentum of their gradients, and Adam's second moment of the bias."""

    weights: FittedWeights
    momentum: FittedWeights
    bias_square: Float[Array, " width"] | None
    steps: Int[Array, ""]


class _Progress(NamedTuple):
    """Everything that a checkpoint holds."""

    state: _State
    best: FittedWeights
    """The weights with the fewest facts that are not certified, of all rounds that ended."""
    weak: Bool[np.ndarray, " facts"]
    """The facts from which half of the batches of this round are drawn; none means all facts."""
    required: Float[np.ndarray, " facts"]
    """The margin that each fact needs in this round."""


class _Records(NamedTuple):
    """The numbers that a checkpoint holds beside the arrays."""

    round: int
    steps_before: int
    """Steps of earlier rounds."""
    epochs: int
    rate: float
    fewest: int
    """The number of facts that `best` does not certify."""
    finishes: int
    """The number of rounds so far in which few facts were left."""


def fit_in_batches(
    start: FittedWeights,
    data: FitData,
    certified_margins: Callable[[FittedWeights], Float[np.ndarray, " facts"]],
    schedule: Schedule,
    *,
    seed: int,
    report: Report | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> WeightsFit:
    """Fit weights until all facts are certified, or until the last round ends.

    Args:
        start: initial weights.
        data: inputs and targets.
        certified_margins: the certified margin of each fact with balanced weights. It is called at
            the end of a round.
        schedule: the length of rounds and the size of batches.
        seed: of batches and answers.
        report: called with the number of steps, the steps that are left in this round, the loss and
            the accuracy.
        checkpoint: a file for the state. If it exists, the fit goes on from it.

    Returns:
        The weights with the fewest facts that are not certified.
    """
    data = jax.tree.map(_device_array, data)
    facts = len(data.known)
    state = _initial_state(jax.tree.map(_device_array, start))
    nothing = np.zeros(facts, np.float32)
    progress = _Progress(state, state.weights, np.zeros(facts, bool), nothing)
    records = _Records(0, 0, schedule.epochs, _LEARNING_RATE, facts + 1, 0)
    saver = _Saver(checkpoint, digest(start, data, seed, repr(schedule)) if checkpoint else "")
    progress, records = saver.load(progress, records)
    while records.round < schedule.max_rounds:
        progress = _run_round(progress, records, data, schedule, seed, report, saver)
        weights = progress.state.weights
        balanced = jax.tree.map(np.asarray, balance(weights, data))
        certified = certified_margins(balanced)
        weak = ~(certified > 0)
        count = int(weak.sum())
        if count == 0:
            steps = records.steps_before + _steps_of_round(records, facts, schedule)
            return WeightsFit(weights, steps, FitStatus.CONDITION_MET)
        again = records.finishes > 0 and count >= records.fewest
        if count < records.fewest:
            progress = progress._replace(best=weights)
        factor = _MARGIN_FACTOR + _MARGIN_STEP * records.finishes
        required, wrong = _required_margins(weights, balanced, certified, data, factor)
        records = _next_round(records, count, wrong, facts, schedule)
        if again:  # a finish that made nothing better: once more from its start, more gently
            required, weak, weights = progress.required, progress.weak, progress.best
        elif count > schedule.few * facts:
            weak = np.zeros(facts, bool)
        if not again and wrong > schedule.few * facts:
            required = nothing
        progress = progress._replace(state=_initial_state(weights), weak=weak, required=required)
        saver.save(progress, records)
    return WeightsFit(progress.best, records.steps_before, FitStatus.ITERATION_LIMIT)


def _required_margins(
    weights: FittedWeights,
    balanced: FittedWeights,
    certified: Float[np.ndarray, " facts"],
    data: FitData,
    factor: float,
) -> tuple[Float[np.ndarray, " facts"], int]:
    """Return a multiple of the margin that each certificate takes off, for these weights.

    The number is that of facts that are wrong even without noise and rounding errors.
    """
    rng = np.random.default_rng(0)
    _, margins = hardest_answers(weights, data, rng=rng)
    _, balanced_margins = hardest_answers(jax.tree.map(_device_array, balanced), data, rng=rng)
    ratio = np.linalg.norm(margins) / max(float(np.linalg.norm(balanced_margins)), 1e-30)
    lost = np.where(np.isfinite(certified), balanced_margins - certified, 0.0)
    required = factor * np.maximum(lost, 0.0)
    # Facts that are certified need no more than they have.
    required = np.where(certified > 0, np.minimum(required, balanced_margins), required) * ratio
    return required.astype(np.float32), int(np.sum(~(margins > 0)))


def _next_round(
    records: _Records, count: int, wrong: int, facts: int, schedule: Schedule
) -> _Records:
    """Return the plan of the next round, if `count` facts are not certified and `wrong` wrong."""
    finishes = records.finishes
    if count <= schedule.few * facts:
        tiny = count <= _VERY_FEW * facts
        epochs = math.ceil(schedule.finish_epochs / 3) if tiny else schedule.finish_epochs
        rate = schedule.finish_rate * schedule.finish_decay**finishes * (_GENTLE if tiny else 1.0)
        finishes += 1
    elif wrong <= schedule.few * facts:
        epochs, rate = max(schedule.finish_epochs, round(0.5 * schedule.epochs)), 1.0
    else:
        epochs, rate = round(1.5 * schedule.epochs), 1.0
    return _Records(
        round=records.round + 1,
        steps_before=records.steps_before + _steps_of_round(records, facts, schedule),
        epochs=epochs,
        rate=_LEARNING_RATE * rate,
        fewest=min(records.fewest, count),
        finishes=finishes,
    )


def _steps_of_round(records: _Records, facts: int, schedule: Schedule) -> int:
    return math.ceil(records.epochs * facts / schedule.batch_size)


def _run_round(
    progress: _Progress,
    records: _Records,
    data: FitData,
    schedule: Schedule,
    seed: int,
    report: Report | None,
    saver: "_Saver",
) -> _Progress:
    """Take the steps of one round that are left."""
    answers, sampled = len(data.outputs), sampled_answers(len(data.outputs))
    state, steps = progress.state, _steps_of_round(records, len(data.known), schedule)
    batches = _Batches(len(data.known), np.flatnonzero(progress.weak), schedule, seed, records)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.weights))
    width = data.outputs.shape[1] * min(answers, sampled)
    per_call = int(_STEP_FLOPS // (6 * schedule.batch_size * (parameters + width)))
    per_call = max(1, min(per_call, math.ceil(steps / _REFRESHES_PER_ROUND)))
    refresh = max(1, steps // (_REFRESHES_PER_ROUND * per_call)) * per_call
    scale = _LOGIT_SCALE * _logit_unit(data)
    numbers = jnp.asarray([steps, records.rate, scale], jnp.float32)
    required = jnp.asarray(progress.required)
    key = jr.fold_in(jr.key(seed), records.round)
    hard, accuracy = None, 0.0
    for step in range(int(state.steps), steps, per_call):
        if step % refresh == 0 or hard is None:
            saver.save(progress, records)
            first = step - step % refresh
            rng = np.random.default_rng([seed, records.round, first])
            hard, margins = hardest_answers(state.weights, data, rng=rng)
            accuracy = float(np.mean(margins > 0))
        call = min(per_call, steps - step)
        facts = jnp.asarray(np.stack([batches[step + i] for i in range(call)]), jnp.int32)
        step_key = jr.fold_in(key, step)
        state, loss = _steps(state, data, facts, hard, required, numbers, step_key, sampled)
        progress = progress._replace(state=state)
        if report is not None:
            left = steps - step - call
            values = {"loss": float(loss), "accuracy": accuracy}
            report(records.steps_before + step + call, left=left, **values)
    return progress


class _Batches:
    """The facts of every step of a round: shuffled epochs, half of them weak facts if any are."""

    def __init__(
        self,
        facts: int,
        weak: Int[np.ndarray, " weak"],
        schedule: Schedule,
        seed: int,
        records: _Records,
    ) -> None:
        self.facts, self.weak, self.size = facts, weak, schedule.batch_size
        self.regular = self.size // 2 if len(weak) else self.size
        self.seed = [seed, records.round]
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def __getitem__(self, step: int) -> Int[np.ndarray, " batch"]:
        positions = step * self.regular + np.arange(self.regular)
        epochs = positions // self.facts
        regular = np.concatenate(
            [
                self._permutation(e)[positions[epochs == e] % self.facts]
                for e in np.unique(epochs).tolist()
            ]
        )
        if len(self.weak) == 0:
            return regular
        rng = np.random.default_rng([*self.seed, 1, step])
        return np.concatenate([regular, rng.choice(self.weak, self.size - self.regular)])

    def _permutation(self, epoch: int) -> Int[np.ndarray, " facts"]:
        if epoch != self._epoch:
            rng = np.random.default_rng([*self.seed, 0, epoch])
            self._epoch, self._order = epoch, rng.permutation(self.facts)
        return self._order


class _Saver:
    """Writes checkpoints, if there is a file for them."""

    def __init__(self, path: str | os.PathLike[str] | None, identity: str) -> None:
        self.file = None if path is None else Checkpoint(path, identity)

    def load(self, progress: _Progress, records: _Records) -> tuple[_Progress, _Records]:
        """Return what the file holds, or the arguments if there is no file."""
        if self.file is None or not self.file.exists():
            return progress, records
        arrays, numbers = self.file.load(progress)
        weak, required = np.asarray(arrays.weak), np.asarray(arrays.required)
        return arrays._replace(weak=weak, required=required), _Records(**numbers)

    def save(self, progress: _Progress, records: _Records) -> None:
        """Write a checkpoint."""
        if self.file is not None:
            self.file.save(progress, records._asdict())


# ---- one step ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="sampled")
def _steps(
    state: _State,
    data: FitData,
    facts: Int[Array, "steps batch"],
    hard: Int[Array, "facts hard"],
    required: Float[Array, " facts"],
    numbers: Float[Array, "3"],
    key: Key[Array, ""],
    sampled: int,
) -> tuple[_State, Array]:
    """Take one step for each batch of facts."""
    answers = data.outputs.shape[0]

    def step(state: _State, batch_and_key: tuple[Array, Array]) -> tuple[_State, Array]:
        batch, step_key = batch_and_key
        if sampled < answers:
            drawn = jr.randint(step_key, (sampled,), 0, answers, dtype=jnp.int32)
        else:
            drawn = jnp.arange(answers, dtype=jnp.int32)
        inputs = data._replace(known=data.known[batch], target=data.target[batch])
        competitors = hard[batch] if sampled < answers else None
        loss, gradient = jax.value_and_grad(_loss)(
            state.weights, inputs, drawn, competitors, required[batch], numbers[2]
        )
        return _update(state, gradient, numbers), loss

    keys = jr.split(key, facts.shape[0])
    state, losses = jax.lax.scan(step, state, (facts, keys))
    return state, jnp.mean(losses)


def _loss(
    weights: FittedWeights,
    inputs: FitData,
    drawn: Int[Array, " sampled"],
    hard: Int[Array, "batch hard"] | None,
    required: Float[Array, " batch"],
    scale: Float[Array, ""],
) -> Float[Array, ""]:
    """Compute the mean cross-entropy over the right, the drawn and the hard answers.

    The required margin is subtracted from the logit of the right answer.
    """
    outputs = scale * model_outputs(weights, inputs)
    target = jnp.asarray(inputs.target)[:, None]
    table = jnp.asarray(inputs.outputs)
    right = jnp.sum(outputs * table[target[:, 0]], axis=1) - scale * required
    logits = outputs @ table[drawn].T
    logits = jnp.where(drawn[None, :] == target, -jnp.inf, logits)
    if hard is not None:
        hard_logits = jnp.einsum("bd,bkd->bk", outputs, table[hard])
        hard_logits = jnp.where(hard == target, -jnp.inf, hard_logits)
        logits = jnp.concatenate([logits, hard_logits], axis=1)
    everything = jnp.concatenate([right[:, None], logits], axis=1)
    return jnp.mean(jax.nn.logsumexp(everything, axis=1) - right)


def _update(state: _State, gradient: FittedWeights, numbers: Float[Array, "3"]) -> _State:
    """Move every matrix by Muon and the bias by Adam."""
    total, peak, _ = numbers
    progress = state.steps.astype(jnp.float32) / total
    rate = peak * jnp.minimum(1.0, progress / _WARM_UP) * jnp.maximum(0.0, 1 - progress)
    momentum = jax.tree.map(lambda m, g: _MOMENTUM * m + g, state.momentum, gradient)
    nesterov = jax.tree.map(lambda m, g: _MOMENTUM * m + g, momentum, gradient)
    width, dim = gradient.mlp_out.shape
    factors = {"mlp_out": min(1.0, _MLP_OUT_RATE * dim / max(width, 1))}
    moved: dict[str, Any] = {
        name: getattr(state.weights, name)
        - rate * factors.get(name, 1.0) * orthogonalize(getattr(nesterov, name))
        for name in ("value", "output", "mlp_in", "mlp_out")
        if getattr(nesterov, name).size
    }
    square = state.bias_square
    if square is not None and gradient.mlp_bias is not None:
        square = _BIAS_DECAY * square + (1 - _BIAS_DECAY) * gradient.mlp_bias**2
        count = state.steps.astype(jnp.float32) + 1
        mean = (1 - _MOMENTUM) * jnp.asarray(momentum.mlp_bias) / (1 - _MOMENTUM**count)
        scale = jnp.sqrt(square / (1 - _BIAS_DECAY**count)) + 1e-12
        bias = jnp.asarray(state.weights.mlp_bias)
        moved["mlp_bias"] = bias - _BIAS_RATE * rate * mean / scale
    return _State(state.weights._replace(**moved), momentum, square, state.steps + 1)


def orthogonalize(matrices: Float[Array, "*stack rows columns"]) -> Array:
    """Replace each matrix by one with nearly equal singular values, with entries of size 1/√n.

    n is the smaller dimension. The Newton-Schulz iteration of Muon runs on the n × n Gram matrix:
    X P(XᵀX) needs two products with X in all, instead of ten.
    """
    transposed = matrices.shape[-2] < matrices.shape[-1]
    tall = jnp.swapaxes(matrices, -1, -2) if transposed else matrices
    rows, columns = tall.shape[-2:]
    tall = tall / (jnp.linalg.norm(tall, axis=(-2, -1), keepdims=True) + 1e-20)
    gram = jnp.swapaxes(tall, -1, -2) @ tall
    identity = jnp.broadcast_to(jnp.eye(columns, dtype=tall.dtype), gram.shape)
    factor = identity
    a, b, c = _NEWTON_SCHULZ
    for _ in range(_NEWTON_SCHULZ_STEPS):
        polynomial = a * identity + b * gram + c * gram @ gram
        factor = factor @ polynomial
        gram = polynomial @ gram @ polynomial
    result = math.sqrt(rows / columns) * tall @ factor
    return jnp.swapaxes(result, -1, -2) if transposed else result


def _initial_state(weights: FittedWeights) -> _State:
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return _State(weights, zeros, zeros.mlp_bias, jnp.zeros((), jnp.int32))


def sampled_answers(answers: int) -> int:
    """Return how many random answers a step draws; all of them if they are few."""
    if answers <= _ALL_ANSWERS:
        return answers
    return min(_MAX_SAMPLED, max(_MIN_SAMPLED, answers // 8))


def _logit_unit(data: FitData) -> float:
    """Return the factor that gives logits of outputs with entries of size 1 the deviation √d."""
    table = np.asarray(data.outputs, np.float64)
    return math.sqrt(table.shape[1]) / (float(np.sqrt(np.mean(np.sum(table**2, axis=1)))) or 1.0)


def _device_array(array: Array | np.ndarray) -> Array:
    array = np.asarray(array)
    return jnp.asarray(array, jnp.float32 if array.dtype.kind == "f" else jnp.int32)


# ---- the exact pass over all answers -------------------------------------------------------------


def hardest_answers(
    weights: FittedWeights, data: FitData, *, rng: np.random.Generator
) -> tuple[Int[Array, "facts hard"], Float[np.ndarray, " facts"]]:
    """Find hard wrong answers of every fact, and its smallest margin over all answers.

    Answers are split at random into 16 groups; the result has the wrong answer with the highest
    logit of each group. Facts are processed in blocks of at most 2²¹ logits.
    """
    facts, answers = len(data.known), len(data.outputs)
    groups = min(_HARD_ANSWERS, answers)
    order = rng.permutation(answers)
    position = np.argsort(order).astype(np.int32)
    padding = -answers % groups
    outputs = jnp.asarray(data.outputs)
    table = jnp.concatenate([outputs[order], jnp.zeros((padding, outputs.shape[1]), outputs.dtype)])
    rows = min(facts, max(1, _BLOCK_ENTRIES // len(table)))
    margins, hardest = np.empty(facts, np.float32), np.empty((facts, groups), np.int64)
    target = position[np.asarray(data.target)]
    known = np.asarray(data.known)
    for start in range(0, facts, rows):
        stop = min(start + rows, facts)
        first = stop - rows  # the last block overlaps the one before: all have the same shape
        inputs = data._replace(known=known[first:stop], outputs=table, target=target[first:stop])
        block = _hardest_in_groups(weights, inputs, groups, answers)
        margins[first:stop], hardest[first:stop] = map(np.asarray, block)
    # With few answers a group may hold the right answer alone; it is masked later.
    return jnp.asarray(order[np.clip(hardest, 0, answers - 1)], jnp.int32), margins


@partial(jax.jit, static_argnames=("groups", "answers"))
def _hardest_in_groups(
    weights: FittedWeights, data: FitData, groups: int, answers: int
) -> tuple[Array, Array]:
    outputs = model_outputs(weights, data)
    table, target = jnp.asarray(data.outputs), jnp.asarray(data.target)
    logits = outputs @ table.T
    right = jnp.sum(outputs * table[target], axis=1)
    columns = jnp.arange(table.shape[0], dtype=jnp.int32)
    excluded = (columns[None, :] == target[:, None]) | (columns >= answers)[None, :]
    logits = jnp.where(excluded, -jnp.inf, logits).reshape(len(outputs), groups, -1)
    highest = jnp.max(logits, axis=2)
    # Faster than argmax, which XLA does not vectorize.
    indices = columns.reshape(1, groups, -1)
    hardest = jnp.max(jnp.where(logits == highest[:, :, None], indices, -1), axis=2)
    return right - jnp.max(highest, axis=1), hardest
