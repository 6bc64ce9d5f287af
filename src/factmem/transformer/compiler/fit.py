"""The compiler's fit: rounds of steps on batches of facts.

A small table is one batch. Above that, the cost of a step (`steps.py`) does not depend on the
number of facts or answers: it takes a batch of facts, random answers and each fact's hardest ones,
which come from an exact pass over all answers (`hardest_answers.py`), several times in a round.

The learning rate falls linearly to zero in each round. At its end keys are rounded to 16 bits, and
every fact is certified. If very few are not, the last matrix is repaired (`repair.py`). If few are
not, a finish follows: keys stay as they are, half of each batch is drawn from these facts, and
every fact has to have a margin a little larger than what its certificate takes off for rounding
errors and noise. Otherwise another full round follows.

Every random number follows from the seed, the round and the step, so that an interrupted fit goes
on as if it had never been interrupted.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float, Int

from factmem._core.checkpoint import Checkpoint, digest
from factmem._core.constants import DEFAULT_WEIGHT_BITS
from factmem._core.lbfgs import FitStatus
from factmem._core.progress import Report
from factmem.memories.precision import rounded_to_integers
from factmem.transformer.compiler.confusion import ConfusedPairs, confused_pairs
from factmem.transformer.compiler.hardest_answers import hardest_answers
from factmem.transformer.compiler.known_inputs import (
    AnyArray,
    FitData,
    FittedWeights,
    balance,
    model_outputs,
)
from factmem.transformer.compiler.repair import Moments, repair
from factmem.transformer.compiler.shapes import MAX_FULL_BATCH_FACTS
from factmem.transformer.compiler.steps import (
    RoundNumbers,
    State,
    device_array,
    initial_logit_scale,
    sampled_answers,
    take_steps,
)

__all__ = ["Schedule", "WeightsFit", "fit_weights"]

_KEY_RATE = 3e-3
"""With 900 facts in 3,120 parameters, 4,000 steps recall 96% with this rate and 88% with fixed keys
(mean of two seeds); with 9,646 facts at 1.6 bits a parameter, 94.4%, and 91.7% with a third of it.
"""
_MARGIN_FACTOR, _MARGIN_STEP = 1.5, 0.5
"""The margin that facts need in a finish, relative to what the last certificate took off, and its
increase from finish to finish: each changes what the next certificate takes off."""
_MAX_REPAIRS, _RESERVE = 3, 0.1
"""Repairs of one round; and the margin that certified facts keep beyond what their certificates
take off, relative to it, if they have it."""
_SAMPLE_FACTS = 4096
"""Facts from which the scale of outputs is computed."""
_ENOUGH = 0.5
"""A finish that leaves more than this fraction of the open facts is not followed by another. At 1.3
bits a parameter ten finishes in a row mended 7% of 462 facts."""
_EPOCHS, _MIN_STEPS = 40, 3000
"""Of the first round of a large table. 27,430 facts at 0.9 bits a parameter: 13% are left after 20
epochs, none after 40; at 1.2 bits none after 60. 3,600 facts at 0.6 bits: 7% after 2,250 steps;
9,646 facts at 0.5 bits: none after 1,130."""
_WEAK_WEIGHT = 2.0
_MAX_REFRESHES = 8
"""Exact passes of a round; at most one every two epochs, for a pass costs a third of an epoch."""
_MAX_NOISE = 1024
"""The number of noise tokens, those with the highest scores, that are kept below EOS in a step."""
_STEP_FLOPS = 2e10
"""Floating-point operations of one compiled call: a fraction of a second, so that Ctrl-C works."""


@dataclass(frozen=True)
class Schedule:
    """How long a fit is.

    Args:
        batch_size: facts in a step.
        epochs: passes over all facts in the first round.
        rate: the largest learning rate of the first round.
        max_rounds: the number of rounds after which the fit gives up.
        max_full_rounds: the same for rounds that are not finishes.
        finish_epochs: passes in a finish, a round that follows when few facts are left.
        finish_rate: the learning rate of a finish, relative to that of the first round.
        finish_decay: the factor of that rate from one finish to the next.
        few: the fraction of facts not certified below which they are few.
        very_few: the same for a repair.
    """

    batch_size: int
    epochs: int
    rate: float = 1e-2
    max_rounds: int = 10
    max_full_rounds: int = 4
    finish_epochs: int = 15
    finish_rate: float = 0.3
    finish_decay: float = 0.6
    few: float = 0.1
    very_few: float = 0.02

    @classmethod
    def default(cls, facts: int, load: float) -> "Schedule":
        """Return a schedule that suits a number of facts and bits per parameter."""
        if facts <= MAX_FULL_BATCH_FACTS:
            steps = round(1000 * min(32.0, max(1.0, load / 0.5) ** 5))
            finish = {"finish_epochs": max(500, steps // 8), "finish_rate": 0.1}
            return cls(facts, steps, rate=0.1, max_rounds=4, max_full_rounds=1, **finish)
        batch_size = min(512, max(64, 2 ** round(math.log2(max(facts, 1) / 40))))
        min_steps = _MIN_STEPS * min(1.0, load / 0.6) ** 3
        epochs = max(_EPOCHS * max(1.0, load / 0.6), min_steps * batch_size / facts)
        return cls(batch_size, math.ceil(epochs))


class WeightsFit(NamedTuple):
    """Fitted weights, the steps of all rounds, and how the last round ended."""

    weights: FittedWeights
    steps: int
    status: FitStatus


class _Progress(NamedTuple):
    """Everything that a checkpoint holds."""

    state: State
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
    trains_keys: bool
    open_facts: int
    """The number of facts that the round before did not certify."""
    fewest: int
    """The number of facts that `best` does not certify."""
    finishes: int
    """The number of finishes since the last full round."""
    full_rounds: int


def fit_weights(
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
            the accuracy; during a repair with None and the number of facts.
        checkpoint: a file for the state. If it exists, the fit goes on from it.

    Returns:
        The weights with the fewest facts that are not certified.
    """
    data = jax.tree.map(device_array, data)
    facts = len(data.known)
    state = State.start(jax.tree.map(device_array, start))
    nothing = np.zeros(facts, np.float32)
    progress = _Progress(state, state.weights, np.zeros(facts, bool), nothing)
    records = _Records(0, 0, schedule.epochs, schedule.rate, True, facts, facts + 1, 0, 1)
    saver = _Saver(checkpoint, digest(start, data, seed, repr(schedule)) if checkpoint else "")
    progress, records = saver.load(progress, records)
    while records.round < schedule.max_rounds:
        progress = _run_round(progress, records, data, schedule, seed, report, saver)
        saver.save(progress, records)
        key = rounded_to_integers(progress.state.weights.key, DEFAULT_WEIGHT_BITS)
        weights = progress.state.weights._replace(key=key)
        margins = _check(weights, data, certified_margins)
        steps = records.steps_before + _steps_of_round(records, facts, schedule)
        if 0 < margins.open.sum() <= max(1, schedule.very_few * facts):
            weights, margins = _repair(weights, margins, data, certified_margins, report)
        count = int(margins.open.sum())
        if count == 0:
            return WeightsFit(weights, steps, FitStatus.CONDITION_MET)
        if count < records.fewest:
            progress = progress._replace(best=weights)
        required = (_MARGIN_FACTOR + _MARGIN_STEP * records.finishes) * margins.lost
        # Facts that are certified need no more than they have.
        required = np.where(margins.open, required, np.minimum(required, margins.exact))
        wrong = int(np.sum(~(margins.exact > 0)))
        records = _next_round(records, steps, count, wrong, facts, schedule)
        if records.full_rounds > schedule.max_full_rounds:
            break
        progress = progress._replace(
            state=State.start(weights),
            weak=margins.open if records.finishes else np.zeros(facts, bool),
            required=required.astype(np.float32) if wrong <= schedule.few * facts else nothing,
        )
        saver.save(progress, records)
    return WeightsFit(progress.best, records.steps_before, FitStatus.ITERATION_LIMIT)


class _Margins(NamedTuple):
    """The smallest margin of every fact in the scale of the weights, not balanced.

    Args:
        exact: without noise and rounding errors.
        certified: what the certificate leaves of it.
    """

    exact: Float[np.ndarray, " facts"]
    certified: Float[np.ndarray, " facts"]

    @property
    def open(self) -> Bool[np.ndarray, " facts"]:
        """The facts that are not certified."""
        return ~(self.certified > 0)

    @property
    def lost(self) -> Float[np.ndarray, " facts"]:
        """What the certificate takes off."""
        finite = np.isfinite(self.certified)
        return np.where(finite, np.maximum(self.exact - self.certified, 0.0), 0.0)


def _check(
    weights: FittedWeights,
    data: FitData,
    certified_margins: Callable[[FittedWeights], Float[np.ndarray, " facts"]],
) -> _Margins:
    """Certify the balanced weights; the exact margins are computed only if a fact is open."""
    balanced = jax.tree.map(np.asarray, balance(weights, data))
    certified = certified_margins(balanced)
    if np.all(certified > 0):
        return _Margins(certified, certified)
    _, exact = hardest_answers(weights, data, rng=np.random.default_rng(0))
    # Balancing multiplies all outputs by one factor.
    sample = data._replace(known=data.known[:_SAMPLE_FACTS])
    balanced = jax.tree.map(device_array, balanced)
    sizes = [float(jnp.linalg.norm(_outputs(w, sample))) for w in (weights, balanced)]
    return _Margins(exact, certified * (sizes[0] / max(sizes[1], 1e-30)))


_outputs = jax.jit(model_outputs)


def _repair(
    weights: FittedWeights,
    margins: _Margins,
    data: FitData,
    certified_margins: Callable[[FittedWeights], Float[np.ndarray, " facts"]],
    report: Report | None,
) -> tuple[FittedWeights, _Margins]:
    """Mend a few open facts by the last matrix; return the weights with the fewest open facts."""
    best = weights, margins
    moments = Moments(weights, data)

    def report_short(short: int) -> None:
        if report is not None:
            report(None, repair=f"{short:,} facts")

    for attempt in range(_MAX_REPAIRS):
        # What rounding takes off changes with the weights: a fact may have been lucky.
        lost = np.maximum(margins.lost, np.median(margins.lost))
        factor = _MARGIN_FACTOR + _MARGIN_STEP * attempt
        # Facts that are certified may lose half of what their certificates leave.
        least = margins.exact - 0.5 * margins.certified
        kept = np.minimum((1 + _RESERVE) * lost, least)
        required = np.where(margins.open, factor * lost, kept)
        rng = np.random.default_rng(attempt)
        weights, _ = repair(
            weights, data, moments, margins.exact, required, rng=rng, report=report_short
        )
        margins = _check(weights, data, certified_margins)
        if margins.open.sum() > best[1].open.sum():
            break
        best = weights, margins
        if not margins.open.any():
            break
    return best


def _next_round(
    records: _Records, steps: int, count: int, wrong: int, facts: int, schedule: Schedule
) -> _Records:
    """Return the plan of the next round, if `count` facts are not certified and `wrong` wrong."""
    few = schedule.few * facts
    helps = records.finishes == 0 or count <= _ENOUGH * records.open_facts
    if finish := count <= few and helps:
        epochs = schedule.finish_epochs
        rate = schedule.finish_rate * schedule.finish_decay**records.finishes
    elif records.finishes == 0 and wrong <= few:
        epochs, rate = max(schedule.finish_epochs, round(0.5 * schedule.epochs)), 1.0
    else:
        epochs, rate = round(1.5 * schedule.epochs), 1.0
    return _Records(
        round=records.round + 1,
        steps_before=steps,
        epochs=epochs,
        rate=schedule.rate * rate,
        trains_keys=not finish,
        open_facts=count,
        fewest=min(records.fewest, count),
        finishes=records.finishes + 1 if finish else 0,
        full_rounds=records.full_rounds + (not finish),
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
    refreshes = min(_MAX_REFRESHES, max(1, records.epochs // 2))
    per_call = max(1, min(per_call, math.ceil(steps / refreshes)))
    refresh = max(1, steps // (refreshes * per_call)) * per_call
    scale = initial_logit_scale(data)
    key_rate = _KEY_RATE if records.trains_keys else 0.0
    numbers = RoundNumbers(steps, records.rate, key_rate, scale)
    numbers = jax.tree.map(jnp.float32, numbers)
    required = jnp.asarray(progress.required)
    key = jr.fold_in(jr.key(seed), records.round)
    hard, accuracy, inputs, pairs = None, 0.0, data, ConfusedPairs.none()
    for step in range(int(state.steps), steps, per_call):
        if step % refresh == 0 or hard is None:
            saver.save(progress, records)
            first = step - step % refresh
            rng = np.random.default_rng([seed, records.round, first])
            hard, margins = hardest_answers(state.weights, data, rng=rng)
            accuracy = float(np.mean(margins > 0))
            if key_rate:
                pairs = confused_pairs(state.weights, data, rng=rng)
            inputs = data._replace(noise=_strongest_noise(data.noise, state.weights.key))
        call = min(per_call, steps - step)
        facts = jnp.asarray(np.stack([batches[step + i] for i in range(call)]), jnp.int32)
        step_key = jr.fold_in(key, step)
        state, loss = take_steps(
            state, inputs, pairs, facts, hard, required, numbers, step_key, sampled
        )
        progress = progress._replace(state=state)
        if report is not None:
            left = steps - step - call
            values = {"loss": float(loss), "accuracy": accuracy}
            report(records.steps_before + step + call, left=left, **values)
    return progress


def _strongest_noise(
    noise: Float[AnyArray, "noise dim"], key: Float[AnyArray, "heads dim"]
) -> Float[AnyArray, "strongest dim"]:
    """Return the noise tokens that some head scores highest, in a fixed number."""
    if len(noise) <= _MAX_NOISE:
        return noise
    highest = np.asarray(jnp.max(jnp.asarray(noise) @ jnp.asarray(key).T, axis=1))
    return noise[np.sort(np.argpartition(-highest, _MAX_NOISE)[:_MAX_NOISE])]


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
        # At most half of a batch, and no more than a fixed weight for each of them.
        extra = math.ceil(_WEAK_WEIGHT * self.size * len(weak) / facts)
        self.regular = self.size - min(self.size // 2, extra)
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
