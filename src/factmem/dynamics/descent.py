"""Plain stochastic gradient descent with fresh prompts in every step: the authors' notebook."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.dynamics.curves import Curves
from factmem.dynamics.linear_attention import LinearAttention
from factmem.dynamics.questions import PromptSample, Seen
from factmem.dynamics.softmax_head import SoftmaxHead
from factmem.facts import PromptDistribution

__all__ = ["Descent", "descend"]

_FINE = 512
"""Times at which losses are measured besides those that are asked for, in equal steps."""
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
    times: Float[np.ndarray, " times"] | None = None,
    report: Report | None = None,
) -> Descent:
    """Trains a model step by step, every weight by −rate × its gradient.

    Args:
        start: what is trained: float arrays in which a gradient is 0 are left as they are.
        asked: where fresh prompts come from.
        tested: fixed prompts on which losses are measured.
        key: of the prompts; those of a step depend on its number alone.
        rate: η.
        steps: how many.
        batch: prompts in a step.
        times: further times at which to measure, as parts of the whole: from 0 to 1. The nearest
            steps are taken.
        report: called with the steps done.

    Raises:
        FactmemError: steps so long that the loss grows without end.
    """
    if not 0 < rate < np.inf:
        raise FactmemError(f"a rate is a number above 0, not {rate}")
    parts = [np.linspace(0.0, 1.0, _FINE + 1), *([] if times is None else [times])]
    looks = np.unique(np.rint(steps * np.concatenate(parts)).astype(np.int64))
    # In the caller's precision: float32, unless it is set otherwise.
    model = jax.tree.map(jnp.asarray, start)
    seen = [_looked(model, tested)]
    for done, until in pairwise(looks.tolist()):
        model = _steps(model, asked, key, jnp.asarray(rate), done, until, batch)
        seen.append(_looked(model, tested))
        loss = float(seen[-1].loss)
        if not loss < float(seen[0].loss) + _DIVERGED:
            raise FactmemError(
                f"with a rate of {rate:g} training diverges before step {until}: take a smaller one"
            )
        if report is not None:
            report(until, loss=loss)
    curves = jax.tree.map(lambda *moments: np.stack(moments), *seen)
    return Descent(rate * looks, curves, model, steps)


@eqx.filter_jit
def _looked(model: LinearAttention | SoftmaxHead, tested: PromptSample) -> Seen:
    counts = jnp.asarray(tested.counts)
    return tested.see(jax.nn.log_softmax(model.logits(counts), axis=1))


@partial(jax.jit, static_argnames="batch")
def _steps(
    model: Model,
    asked: PromptDistribution,
    key: Key[Array, ""],
    rate: Float[Array, ""],
    first: int | Array,
    end: int | Array,
    batch: int,
) -> Model:
    """Steps first … end − 1; their number is data, so that one program serves for any."""

    def step(number: Array, model: Model) -> Model:
        prompts = asked.sample(jr.fold_in(key, number), batch, form="counts")

        def loss(model: Model) -> Array:
            logits = model.logits(prompts.content)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, prompts.answers)
            return jnp.mean(losses)

        gradient = jax.grad(loss)(model)
        return jax.tree.map(lambda weight, slope: weight - rate * slope, model, gradient)

    return jax.lax.fori_loop(first, end, step, model)
