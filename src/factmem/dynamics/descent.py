"""Plain stochastic gradient descent with fresh prompts in every step: the authors' notebook."""

from dataclasses import dataclass
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from factmem.dynamics.curves import Curves
from factmem.dynamics.linear_attention import LinearAttention
from factmem.dynamics.questions import PromptSample, Seen
from factmem.dynamics.softmax_head import SoftmaxHead
from factmem.errors import FactmemError
from factmem.facts import PromptDistribution
from factmem.progress import Report

__all__ = ["Descent", "descend"]

_DIVERGED = 10.0
"""Nats by which a loss above that of the start shows that steps are too long."""


Model = TypeVar("Model", LinearAttention, SoftmaxHead)


@dataclass(frozen=True)
class Descent(Curves):
    """Training by steps; times are steps × rate."""

    end: LinearAttention | SoftmaxHead
    steps: int


def descend(
    start: LinearAttention | SoftmaxHead,
    asked: PromptDistribution,
    tested: PromptSample,
    key: Key[Array, ""],
    *,
    rate: float,
    steps: int,
    batch: int = 1024,
    points: int = 512,
    report: Report | None = None,
) -> Descent:
    """Trains a model step by step, every weight by −rate × its gradient.

    Args:
        start: what is trained: float arrays in which a gradient is 0 are left as they are.
        asked: where fresh prompts come from.
        tested: fixed prompts on which losses are measured.
        key: of the prompts.
        rate: η.
        steps: how many; rounded up to a multiple of those between two points.
        batch: prompts in a step.
        points: how often losses are measured, at most, the start not counted.
        report: called with the steps done.

    Raises:
        FactmemError: steps so long that the loss grows without end.
    """
    if not 0 < rate < np.inf:
        raise FactmemError(f"a rate is a number above 0, not {rate}")
    each = -(-steps // points)
    # In the caller's precision: float32, unless it is set otherwise.
    model, done = jax.tree.map(jnp.asarray, start), 0
    seen = [_looked(model, tested)]
    while done < steps:
        model = _steps(model, asked, jr.fold_in(key, done), jnp.asarray(rate), each, batch)
        done += each
        seen.append(_looked(model, tested))
        loss = float(seen[-1].loss)
        if not loss < float(seen[0].loss) + _DIVERGED:
            raise FactmemError(
                f"with a rate of {rate:g} training diverges before step {done}: take a smaller one"
            )
        if report is not None:
            report(done, loss=loss)
    times = rate * each * np.arange(len(seen))
    curves = jax.tree.map(lambda *moments: np.stack(moments), *seen)
    return Descent(times, curves, model, done)


@eqx.filter_jit
def _looked(model: LinearAttention | SoftmaxHead, tested: PromptSample) -> Seen:
    counts = jnp.asarray(tested.counts)
    return tested.see(jax.nn.log_softmax(model.logits(counts), axis=1))


@eqx.filter_jit
def _steps(
    model: Model,
    asked: PromptDistribution,
    key: Key[Array, ""],
    rate: Float[Array, ""],
    count: int,
    batch: int,
) -> Model:
    def step(model: Model, key: Array) -> tuple[Model, None]:
        prompts = asked.sample(key, batch, form="counts")

        def loss(model: Model) -> Array:
            logits = model.logits(prompts.content)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, prompts.answers)
            return jnp.mean(losses)

        gradient = jax.grad(loss)(model)
        return jax.tree.map(lambda weight, slope: weight - rate * slope, model, gradient), None

    return jax.lax.scan(step, model, jr.split(key, count))[0]
