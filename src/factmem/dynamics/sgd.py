"""Stochastic gradient descent without momentum, with fresh prompts in every step.

Reference: the authors' notebook for Figure 5.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem._core.result import Result, Status
from factmem.dynamics.curves import Curves
from factmem.dynamics.linear_attention import LinearAttention
from factmem.dynamics.prompt_ensembles import LossStatistics, PromptSample
from factmem.dynamics.softmax_head import SoftmaxHead
from factmem.facts import PromptDistribution

__all__ = ["SGDResult", "SGDStatus", "sgd"]

_GRID_POINTS = 512
"""Equally spaced times at which losses are measured, besides the requested ones."""
_DIVERGED = 10.0
"""SGD has diverged when the loss is this many nats above the initial loss."""


Model = TypeVar("Model", LinearAttention, SoftmaxHead)


class SGDStatus(Status):
    """How SGD ended."""

    STEP_LIMIT = "All steps were done."


@dataclass(frozen=True, kw_only=True)
class SGDResult(Curves, Result[LinearAttention | SoftmaxHead]):
    """A model trained by SGD, and its learning curves; times are steps × learning rate.

    Args:
        model: the model after the last step.
        status: how SGD ended.
        steps: the number of steps.
    """

    status: SGDStatus
    steps: int

    @property
    def metrics(self) -> dict[str, Any]:
        """Steps and the final loss, in nats."""
        return {"steps": self.steps, "loss": float(self.loss[-1])}


def sgd(
    start: LinearAttention | SoftmaxHead,
    prompts: PromptDistribution,
    test_prompts: PromptSample,
    *,
    key: Key[Array, ""],
    learning_rate: float,
    steps: int,
    batch_size: int = 1024,
    times: Float[np.ndarray, " times"] | None = None,
    report: Report | None = None,
) -> SGDResult:
    """Train a model by SGD: every step adds −η × gradient to every weight.

    Args:
        start: the initial model; arrays whose gradient is 0 do not change.
        prompts: the distribution of the fresh prompts.
        test_prompts: fixed prompts on which losses are measured.
        key: random key for the prompts; those of a step depend on its number only.
        learning_rate: η.
        steps: the number of steps.
        batch: the number of prompts in a step.
        times: further times at which to measure losses, as fractions from 0 to 1 of the total time;
            rounded to steps.
        report: called with the number of steps done.

    Raises:
        FactmemError: the learning rate is not positive, or the loss diverges.
    """
    if not 0 < learning_rate < np.inf:
        raise FactmemError(f"learning_rate must be positive and finite, got {learning_rate}")
    fractions = [np.linspace(0.0, 1.0, _GRID_POINTS + 1), *([] if times is None else [times])]
    recorded_steps = np.unique(np.rint(steps * np.concatenate(fractions)).astype(np.int64))
    # In the caller's precision: float32 by default.
    model = jax.tree.map(jnp.asarray, start)
    statistics = [_statistics(model, test_prompts)]
    for first, end in pairwise(recorded_steps.tolist()):
        model = _steps(model, prompts, jnp.asarray(learning_rate), first, end, batch_size, key=key)
        statistics.append(_statistics(model, test_prompts))
        loss = float(statistics[-1].loss)
        if not loss < float(statistics[0].loss) + _DIVERGED:
            raise FactmemError(
                f"training with learning rate {learning_rate:g} diverged before step {end}; "
                "use a smaller one"
            )
        if report is not None:
            report(end, loss=loss)
    curves = jax.tree.map(lambda *moments: np.stack(moments), *statistics)
    return SGDResult(
        learning_rate * recorded_steps,
        curves,
        model=model,
        status=SGDStatus.STEP_LIMIT,
        steps=steps,
    )


@eqx.filter_jit
def _statistics(model: LinearAttention | SoftmaxHead, test_prompts: PromptSample) -> LossStatistics:
    counts = jnp.asarray(test_prompts.counts)
    return test_prompts.statistics(jax.nn.log_softmax(model.logits(counts), axis=1))


@partial(jax.jit, static_argnames="batch_size")
def _steps(
    model: Model,
    prompts: PromptDistribution,
    learning_rate: Float[Array, ""],
    first: int | Array,
    end: int | Array,
    batch_size: int,
    *,
    key: Key[Array, ""],
) -> Model:
    """Do the steps first … end − 1; both are data, so any number of steps is compiled once."""

    def step(number: Array, model: Model) -> Model:
        prompt_batch = prompts.sample_batch(batch_size, form="counts", key=jr.fold_in(key, number))

        def loss(model: Model) -> Array:
            logits = model.logits(prompt_batch.content)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, prompt_batch.answers)
            return jnp.mean(losses)

        gradient = jax.grad(loss)(model)
        return jax.tree.map(lambda weight, change: weight - learning_rate * change, model, gradient)

    return jax.lax.fori_loop(first, end, step, model)
