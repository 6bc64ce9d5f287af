"""The compiled part of training: a stack of runs of one shape, trained on shared prompts.

A step samples one batch and gives it to every run in turn. The runs share nothing but the batch, so
the numbers of a run do not depend on the other runs. On a CPU, runs one after the other stay in the
cache and are faster than one vectorized program (docs/training.md has the numbers); on an
accelerator they are vectorized.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from factmem.facts.prompts import (
    PromptBatch,
    PromptContent,
    PromptDistribution,
    SplitPrompts,
    TokenPrompts,
)
from factmem.facts.vocabulary import PromptForm
from factmem.training.hard_noise import add_hard_noise, hard_noise_key
from factmem.training.hyperparameters import Hyperparameters, scheduled_learning_rate
from factmem.training.optimizers import gradient_transformation
from factmem.training.protocol import StepConfig
from factmem.transformer.attention import TRAINING_TOLERANCE
from factmem.transformer.model import Transformer, accuracy_from_logits, mean_cross_entropy
from factmem.transformer.prompt_form_rule import choose_prompt_form
from factmem.transformer.prompt_forms import sample_prompts

__all__ = [
    "Evaluation",
    "RunStack",
    "advance",
    "evaluate",
    "init_stack",
    "prompt_form",
    "trainable_state",
]


class RunStack(eqx.Module):
    """Runs that are trained together. Every array has a leading axis of runs."""

    models: Transformer
    optimizer_state: Any
    """The state of `gradient_transformation`."""
    hyperparameters: Hyperparameters
    answers: Int[Array, "runs facts"]
    """Every run's answers to the facts; subjects and relations are the same for all runs."""
    answer_mask: Bool[Array, "runs answers"] | None = None
    """Which answers are not padding; None if there is no padding."""


class Evaluation(NamedTuple):
    """Loss and accuracy of every run on given prompts."""

    loss: Float[Array, " runs"]
    accuracy: Float[Array, " runs"]
    finite: Bool[Array, " runs"]
    """Whether loss, weights and optimizer state are all finite."""


@partial(jax.jit, static_argnames="config")
def init_stack(
    models: Transformer,
    hyperparameters: Hyperparameters,
    answers: Int[Array, "runs facts"],
    config: StepConfig,
    answer_mask: Bool[Array, "runs answers"] | None = None,
) -> RunStack:
    """Return a stack before its first step."""
    init_optimizers = jax.vmap(
        lambda model, own: gradient_transformation(config.optimizer, own).init(model.weights)
    )
    optimizer_state = init_optimizers(models, hyperparameters)
    return RunStack(models, optimizer_state, hyperparameters, answers, answer_mask)


@partial(jax.jit, static_argnames=("config", "vectorize", "form"))
def advance(
    stack: RunStack,
    prompts: PromptDistribution,
    first_step: Int[Array, ""],
    steps: Int[Array, ""],
    active: Bool[Array, " runs"],
    config: StepConfig,
    vectorize: bool = False,
    form: PromptForm | None = None,
    *,
    key: Key[Array, ""],
) -> RunStack:
    """Train the active runs for some steps.

    Args:
        stack: the runs.
        prompts: the prompt distribution; the answers are those of the stack.
        first_step: the number of the first step; data, so it is not compiled in.
        steps: the number of steps; data as well.
        active: the runs to train; the others stay unchanged, at no cost.
        config: the static part of a step.
        vectorize: whether to vectorize over the runs instead of looping over them.
        form: the form of the prompts; None for the fastest. All give the same numbers up to
            rounding.
        key: the key of the batches: step t uses `fold_in(key, t)`.
    """
    step_runs = _step_vectorized if vectorize else _step_in_turn
    form = prompt_form(stack, prompts) if form is None else form

    def step(number: Int[Array, ""], state: Any) -> Any:
        step_key = jr.fold_in(key, number)
        batch = sample_prompts(
            prompts, config.batch_size, form, stratified=config.stratified, key=step_key
        )
        # Converted once for all runs.
        batch = batch._replace(content=_with_dtype(batch.content, _dtype(stack)))
        current = eqx.tree_at(trainable_state, stack, state)
        train_run = partial(_step, batch, prompts, number, config, hard_noise_key(step_key))
        return step_runs(train_run, current, active)

    state = jax.lax.fori_loop(first_step, first_step + steps, step, trainable_state(stack))
    return eqx.tree_at(trainable_state, stack, state)


def prompt_form(stack: RunStack, prompts: PromptDistribution) -> PromptForm:
    """Return the form of prompts in which the steps of a stack are fastest."""
    return choose_prompt_form(prompts.vocabulary, prompts.length, stack.models.shape.dim)


def trainable_state(stack: RunStack) -> tuple[Any, Any]:
    """Return what steps change: the weights and the optimizer state."""
    return stack.models.weights, stack.optimizer_state


@jax.jit
def evaluate(
    stack: RunStack,
    batch: PromptBatch,
    prompts: PromptDistribution | None = None,
    *,
    noise_key: Key[Array, ""] | None = None,
) -> Evaluation:
    """Compute loss and accuracy of every run, and whether it is finite.

    Args:
        stack: the runs.
        batch: the test prompts.
        prompts: the distribution of the prompts. If given, runs that train with hard noise have it
            in as many of the test prompts.
        noise_key: the random key for hard noise.
    """

    def evaluate_run(run: RunStack) -> Evaluation:
        own, fraction = batch, run.hyperparameters.hard_noise
        if fraction is not None and prompts is not None and noise_key is not None:
            own = add_hard_noise(batch, run.models, prompts, fraction, key=noise_key)
        logits, targets = _logits_and_targets(run, run.models, own)
        loss, accuracy = mean_cross_entropy(logits, targets), accuracy_from_logits(logits, targets)
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(trainable_state(run))]
        return Evaluation(loss, accuracy, jnp.isfinite(loss) & jnp.all(jnp.stack(finite)))

    return jax.lax.map(evaluate_run, stack)


def _logits_and_targets(
    run: RunStack, model: Transformer, batch: PromptBatch, tolerance: float | None = None
) -> tuple[Float[Array, "batch outputs"], Int[Array, " batch"]]:
    logits = model.logits(batch.content, tolerance=tolerance)
    if run.answer_mask is not None:
        logits = jnp.where(run.answer_mask[None, :], logits, -jnp.inf)
    return logits, model.targets(run.answers[batch.fact_ids])


def _step(
    batch: PromptBatch,
    prompts: PromptDistribution,
    number: Int[Array, ""],
    config: StepConfig,
    noise_key: Key[Array, ""],
    run: RunStack,
) -> Any:
    """Return the trainable state of one run after one more step."""
    weights: Any = run.models.weights
    fraction = run.hyperparameters.hard_noise
    if fraction is not None:
        batch = add_hard_noise(batch, run.models, prompts, fraction, key=noise_key)

    def loss(weights: Any) -> Float[Array, ""]:
        model = eqx.tree_at(lambda model: model.weights, run.models, weights)
        return mean_cross_entropy(*_logits_and_targets(run, model, batch, TRAINING_TOLERANCE))

    gradient = jax.grad(loss)(weights)
    # optax mixes in float32 counters of its own; only here may types be promoted.
    with jax.numpy_dtype_promotion("standard"):
        optimizer = gradient_transformation(config.optimizer, run.hyperparameters)
        direction, state = optimizer.update(gradient, run.optimizer_state, weights)
    step = number.astype(_dtype(run))
    rate = scheduled_learning_rate(run.hyperparameters, config.schedule, step)
    return jax.tree.map(lambda weight, change: weight - rate * change, weights, direction), state


def _step_in_turn(step: Any, stack: RunStack, active: Bool[Array, " runs"]) -> Any:
    order = jnp.argsort(~active)  # stable: active runs first

    def step_run(position: Int[Array, ""], state: Any) -> Any:
        index = order[position]
        run = jax.tree.map(lambda leaf: leaf[index], eqx.tree_at(trainable_state, stack, state))
        return jax.tree.map(lambda leaf, new: leaf.at[index].set(new), state, step(run))

    return jax.lax.fori_loop(0, jnp.sum(active), step_run, trainable_state(stack))


def _step_vectorized(step: Any, stack: RunStack, active: Bool[Array, " runs"]) -> Any:
    def select(before: Array, after: Array) -> Array:
        return jnp.where(active.reshape(-1, *[1] * (before.ndim - 1)), after, before)

    return jax.tree.map(select, trainable_state(stack), jax.vmap(step)(stack))


def _with_dtype(content: PromptContent, dtype: jnp.dtype) -> PromptContent:
    """Convert counts; token ids stay integers."""
    if isinstance(content, SplitPrompts):
        return content._replace(shared=content.shared.astype(dtype))
    return content if isinstance(content, TokenPrompts) else content.astype(dtype)


def _dtype(stack: RunStack) -> jnp.dtype:
    return stack.models.weights.query.dtype
