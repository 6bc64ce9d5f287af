"""The compiled part of training: many runs of one shape, step by step on shared prompts.

A step samples one batch and gives it to every run of the stack in turn: only the batch is shared,
so that a run goes through the same numbers whatever runs beside it, however it ends. On a CPU, runs
one after the other stay in its caches and are faster than one program over all of them at once
(docs/training.md has the figures); on an accelerator they go together.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from factmem.facts.prompts import PromptDistribution, Prompts
from factmem.training.optimizers import Settings, learning_rate, transformation
from factmem.training.protocol import Recipe
from factmem.transformer.attention import TRAINING_TOLERANCE
from factmem.transformer.model import Transformer, accuracy_from_logits, mean_cross_entropy

__all__ = ["Scores", "Stack", "advance", "begin", "measure", "trained"]


class Stack(eqx.Module):
    """IndependentTasks that are trained together. Every array has a leading axis of runs."""

    models: Transformer
    optimizer: Any
    """The state of `optimizers.transformation`."""
    settings: Settings
    answers: Int[Array, "runs facts"]
    """Every run's own answers to the facts; the questions are the same for all."""
    possible: Bool[Array, "runs answers"] | None = None
    """Which answers there are; None if all are."""


class Scores(NamedTuple):
    """How the runs of a stack do on given prompts."""

    loss: Float[Array, " runs"]
    accuracy: Float[Array, " runs"]
    finite: Bool[Array, " runs"]
    """Whether the loss, all weights and all that the optimizer remembers are numbers."""


@partial(jax.jit, static_argnames="recipe")
def begin(
    models: Transformer,
    settings: Settings,
    answers: Int[Array, "runs facts"],
    recipe: Recipe,
    possible: Bool[Array, "runs answers"] | None = None,
) -> Stack:
    """A stack before its first step."""
    state = jax.vmap(lambda model, own: transformation(recipe.optimizer, own).init(model.weights))
    return Stack(models, state(models, settings), settings, answers, possible)


@partial(jax.jit, static_argnames=("recipe", "together"))
def advance(
    stack: Stack,
    asked: PromptDistribution,
    key: Key[Array, ""],
    first: Int[Array, ""],
    steps: Int[Array, ""],
    alive: Bool[Array, " runs"],
    recipe: Recipe,
    together: bool = False,
) -> Stack:
    """Some steps further.

    Args:
        stack: the runs.
        asked: the questions, of which only the answers may differ from run to run.
        key: of the batches: step t has the batch of `fold_in(key, t)`, whenever it is done.
        first, steps: from which step, and how many; data, so that no number compiles anew.
        alive: the runs to go on with; all others stay as they are, at no cost.
        recipe: what a step does.
        together: all runs in one program instead of one by one.
    """
    step_each = _step_together if together else _step_one_by_one

    def step(number: Int[Array, ""], state: Any) -> Any:
        batch_key = jr.fold_in(key, number)
        prompts = asked.sample(batch_key, recipe.batch, form="counts", evenly=recipe.evenly)
        # Converted once for all runs.
        prompts = prompts._replace(content=prompts.content.astype(_dtype(stack)))
        here = eqx.tree_at(trained, stack, state)
        return step_each(partial(_step, prompts, number, recipe), here, alive)

    state = jax.lax.fori_loop(first, first + steps, step, trained(stack))
    return eqx.tree_at(trained, stack, state)


def trained(stack: Stack) -> tuple[Any, Any]:
    """What steps change: the weights and the state of the optimizer."""
    return stack.models.weights, stack.optimizer


@jax.jit
def measure(stack: Stack, prompts: Prompts) -> Scores:
    """Loss, accuracy and health of every run."""

    def of_run(run: Stack) -> Scores:
        logits, targets = _decoded(run, run.models, prompts)
        loss, share = mean_cross_entropy(logits, targets), accuracy_from_logits(logits, targets)
        parts = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(trained(run))]
        return Scores(loss, share, jnp.isfinite(loss) & jnp.all(jnp.stack(parts)))

    return jax.lax.map(of_run, stack)


def _decoded(
    run: Stack, model: Transformer, prompts: Prompts, tolerance: float | None = None
) -> tuple[Float[Array, "batch outputs"], Int[Array, " batch"]]:
    """The logits of a run with these weights, and which of them should be the largest."""
    logits = model.logits(prompts.content, tolerance=tolerance)
    if run.possible is not None:
        logits = jnp.where(run.possible[None, :], logits, -jnp.inf)
    return logits, model.targets(run.answers[prompts.facts])


def _step(prompts: Prompts, number: Int[Array, ""], recipe: Recipe, run: Stack) -> Any:
    """What one run has trained after one more step."""
    settings = run.settings
    weights: Any = run.models.weights

    def loss(weights: Any) -> Float[Array, ""]:
        model = eqx.tree_at(lambda model: model.weights, run.models, weights)
        return mean_cross_entropy(*_decoded(run, model, prompts, TRAINING_TOLERANCE))

    slope = jax.grad(loss)(weights)
    # optax mixes its own float32 counters in; nothing else may promote types silently.
    with jax.numpy_dtype_promotion("standard"):
        optimizer = transformation(recipe.optimizer, settings)
        direction, state = optimizer.update(slope, run.optimizer, weights)
    rate = learning_rate(settings, recipe.schedule, number.astype(_dtype(run)))
    return jax.tree.map(lambda weight, to: weight - rate * to, weights, direction), state


def _step_one_by_one(step: Any, stack: Stack, alive: Bool[Array, " runs"]) -> Any:
    order = jnp.argsort(~alive)  # stable: those alive first

    def next_run(place: Int[Array, ""], state: Any) -> Any:
        number = order[place]
        run = jax.tree.map(lambda leaf: leaf[number], eqx.tree_at(trained, stack, state))
        return jax.tree.map(lambda leaf, new: leaf.at[number].set(new), state, step(run))

    return jax.lax.fori_loop(0, jnp.sum(alive), next_run, trained(stack))


def _step_together(step: Any, stack: Stack, alive: Bool[Array, " runs"]) -> Any:
    def kept(before: Array, after: Array) -> Array:
        return jnp.where(alive.reshape(-1, *[1] * (before.ndim - 1)), after, before)

    return jax.tree.map(kept, trained(stack), jax.vmap(step)(stack))


def _dtype(stack: Stack) -> jnp.dtype:
    return stack.models.weights.query.dtype
