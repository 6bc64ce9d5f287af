"""Whether a transformer recalls its facts: every fact, among sampled noise and the worst noise."""

from collections.abc import Iterator
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key

from factmem.facts.prompts import PromptDistribution, Prompts
from factmem.memories.decoding import Margins, smallest_margins
from factmem.transformer.constructions.denoiser import strongest_noise
from factmem.transformer.model import Transformer

__all__ = ["Recall", "recall"]

_PROMPTS_AT_ONCE, _COUNTS_AT_ONCE = 4096, 2**26


@dataclass(frozen=True)
class Recall:
    """How well a transformer recalls a table.

    Args:
        facts: how many there are.
        prompts: how many prompts asked for each of them.
        accuracy: the share of facts whose answer won in *every* prompt; a tie is no recall.
        sampled_accuracy: the share of the sampled prompts whose answer won.
        min_margin: the smallest (u_a* − u_y)·F over all prompts and other outputs y.
        relative_margin: the smallest of the same over ‖F‖ ‖u_a* − u_y‖.
    """

    facts: int
    prompts: int
    accuracy: float
    sampled_accuracy: float
    min_margin: float
    relative_margin: float


def recall(
    model: Transformer, asked: PromptDistribution, key: Key[Array, ""], sampled: int = 8
) -> Recall:
    """Asks for every fact, in sampled prompts and in the worst ones.

    In the worst prompts all T − 3 places hold the same noise token: each that is the strongest of
    some head, in turn.

    Args:
        model: what is asked.
        asked: the questions.
        key: randomness of the sampled noise.
        sampled: how many sampled prompts ask for each fact.
    """
    noise = strongest_noise(model.scores(), model.vocabulary)
    smallest = np.full(asked.facts, np.inf)
    relative, won = np.inf, 0
    at_once = max(1, min(_PROMPTS_AT_ONCE, _COUNTS_AT_ONCE // model.vocabulary.prompt_tokens))
    every = np.arange(asked.facts, dtype=np.int32)
    for part, facts in enumerate(np.split(every, range(at_once, asked.facts, at_once))):
        part_key = jr.fold_in(key, part)
        questions = _questions(asked, jnp.asarray(facts), part_key, sampled, noise)
        for number, prompts in enumerate(questions):
            found = _margins(model, prompts)
            won += int(np.sum(np.asarray(found.margin) > 0)) if number < sampled else 0
            smallest[facts] = np.minimum(smallest[facts], _or_lost(found.margin))
            relative = min(relative, float(_or_lost(found.relative).min()))
    return Recall(
        facts=asked.facts,
        prompts=sampled + len(noise),
        accuracy=float(np.mean(smallest > 0)),
        sampled_accuracy=won / (asked.facts * sampled) if sampled else np.nan,
        min_margin=float(smallest.min()),
        relative_margin=relative,
    )


def _questions(
    asked: PromptDistribution,
    facts: Int[Array, " batch"],
    key: Key[Array, ""],
    sampled: int,
    noise: Int[np.ndarray, " noise_tokens"],
) -> Iterator[Prompts]:
    for number in range(sampled):
        yield _sampled(asked, jr.fold_in(key, number), facts)
    for token in noise:
        yield _filled(asked, facts, jnp.asarray(token, jnp.int32))


_sampled = eqx.filter_jit(lambda asked, key, facts: asked.ask(key, facts, form="counts"))
_filled = eqx.filter_jit(PromptDistribution.fill)


@eqx.filter_jit
def _margins(model: Transformer, prompts: Prompts) -> Margins:
    outputs = model(prompts.content)
    return smallest_margins(outputs, model.embeddings.outputs, model.targets(prompts.answers))


def _or_lost(margins: Array) -> np.ndarray:
    """NaN is no answer: as bad as can be."""
    found = np.asarray(margins, np.float64)
    return np.where(np.isnan(found), -np.inf, found)
