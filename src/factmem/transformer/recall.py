"""Measure recall: every fact, in sampled prompts and in prompts with adversarial noise."""

from collections.abc import Iterator
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key

from factmem.facts.prompts import PromptBatch, PromptDistribution
from factmem.memories.decoding import Margins, smallest_margins
from factmem.transformer.constructions.denoiser import strongest_noise
from factmem.transformer.model import Transformer

__all__ = ["RecallResult", "recall"]

_MAX_BATCH, _MAX_BATCH_COUNTS = 4096, 2**26
"""Largest number of prompts in a batch, and of entries of its counts."""


@dataclass(frozen=True)
class RecallResult:
    """How well a transformer recalls a table.

    Args:
        facts: number of facts.
        prompts_checked: number of prompts per fact, sampled and adversarial together.
        accuracy: fraction of facts whose answer wins in *every* prompt; a tie is not recall.
        sampled_accuracy: fraction of sampled prompts whose answer wins; NaN without samples.
        min_margin: minimum of (u_a* − u_y)·F over all prompts and other outputs y.
        min_relative_margin: minimum of the same divided by ‖F‖ ‖u_a* − u_y‖.
    """

    facts: int
    prompts_checked: int
    accuracy: float
    sampled_accuracy: float
    min_margin: float
    min_relative_margin: float


def recall(
    model: Transformer,
    prompts: PromptDistribution,
    *,
    key: Key[Array, ""],
    prompts_per_fact: int = 8,
) -> RecallResult:
    """Ask for every fact, in sampled prompts and in adversarial ones.

    In an adversarial prompt one noise token fills all T − 3 noise positions. There is one such
    prompt for each noise token that some head scores highest.

    Args:
        model: the transformer.
        prompts: distribution of prompts, with the facts.
        key: random key for the sampled noise.
        prompts_per_fact: number of sampled prompts per fact.
    """
    noise = strongest_noise(model.scores(), model.vocabulary)
    min_margins = np.full(prompts.facts, np.inf)
    min_relative_margin, correct = np.inf, 0
    batch_size = max(1, min(_MAX_BATCH, _MAX_BATCH_COUNTS // model.vocabulary.prompt_tokens))
    fact_ids = np.arange(prompts.facts, dtype=np.int32)
    batches = np.split(fact_ids, range(batch_size, prompts.facts, batch_size))
    for batch_number, facts in enumerate(batches):
        batch_key = jr.fold_in(key, batch_number)
        batch_prompts = _batches(
            prompts, jnp.asarray(facts), prompts_per_fact, noise, key=batch_key
        )
        for number, batch in enumerate(batch_prompts):
            margins = _margins(model, batch)
            if number < prompts_per_fact:
                correct += int(np.sum(np.asarray(margins.margin) > 0))
            min_margins[facts] = np.minimum(min_margins[facts], _nan_as_lost(margins.margin))
            min_relative_margin = min(
                min_relative_margin, float(_nan_as_lost(margins.relative).min())
            )
    sampled = prompts.facts * prompts_per_fact
    return RecallResult(
        facts=prompts.facts,
        prompts_checked=prompts_per_fact + len(noise),
        accuracy=float(np.mean(min_margins > 0)),
        sampled_accuracy=correct / sampled if sampled else np.nan,
        min_margin=float(min_margins.min()),
        min_relative_margin=min_relative_margin,
    )


def _batches(
    prompts: PromptDistribution,
    facts: Int[Array, " batch"],
    prompts_per_fact: int,
    noise: Int[np.ndarray, " noise_tokens"],
    *,
    key: Key[Array, ""],
) -> Iterator[PromptBatch]:
    """Yield batches with one prompt for each of the facts: first sampled, then adversarial ones."""
    for number in range(prompts_per_fact):
        yield _sample(prompts, jr.fold_in(key, number), facts)
    for token in noise:
        yield _fill(prompts, facts, jnp.asarray(token, jnp.int32))


_sample = eqx.filter_jit(lambda prompts, key, facts: prompts.sample(facts, form="counts", key=key))
_fill = eqx.filter_jit(PromptDistribution.fill_noise)


@eqx.filter_jit
def _margins(model: Transformer, batch: PromptBatch) -> Margins:
    outputs = model(batch.content)
    return smallest_margins(outputs, model.embeddings.outputs, model.targets(batch.answers))


def _nan_as_lost(margins: Array) -> np.ndarray:
    """Replace NaN by −∞: a model that outputs NaN does not recall."""
    margins_64 = np.asarray(margins, np.float64)
    return np.where(np.isnan(margins_64), -np.inf, margins_64)
