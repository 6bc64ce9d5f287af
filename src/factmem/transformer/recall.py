"""Whether a transformer recalls its facts: every fact, among sampled noise and the worst noise."""

from dataclasses import dataclass

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key

from factmem.decoding import Margins, smallest_margins
from factmem.facts.prompts import PromptDistribution, Prompts
from factmem.transformer.denoiser import strongest_noise
from factmem.transformer.model import Transformer

__all__ = ["Recall", "recall"]

_PROMPTS_AT_ONCE = 4096


@dataclass(frozen=True)
class Recall:
    """How well a transformer recalls a table.

    Args:
        facts: how many there are.
        prompts: how many prompts asked for each of them.
        accuracy: the share of facts whose answer won in *every* prompt; a tie is no recall.
        min_margin: the smallest (u_a* − u_y)·F over all prompts and other outputs y.
        relative_margin: the smallest of the same over ‖F‖ ‖u_a* − u_y‖.
    """

    facts: int
    prompts: int
    accuracy: float
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
    relative = np.inf
    facts = np.arange(asked.facts, dtype=np.int32)
    for start in range(0, asked.facts, _PROMPTS_AT_ONCE):
        some = facts[start : start + _PROMPTS_AT_ONCE]
        for round_key in jr.split(jr.fold_in(key, start), max(sampled, 1))[:sampled]:
            found = _sampled_margins(model, asked, round_key, some)
            smallest[some] = np.fmin(smallest[some], _or_lost(found.margin))
            relative = min(relative, float(_or_lost(found.relative).min()))
        for token in noise:
            found = _filled_margins(model, asked, some, np.int32(token))
            smallest[some] = np.fmin(smallest[some], _or_lost(found.margin))
            relative = min(relative, float(_or_lost(found.relative).min()))
    return Recall(
        facts=asked.facts,
        prompts=sampled + len(noise),
        accuracy=float(np.mean(smallest > 0)),
        min_margin=float(smallest.min()),
        relative_margin=relative,
    )


def _or_lost(margins: Array) -> np.ndarray:
    """NaN is no answer: as bad as can be."""
    return np.nan_to_num(np.asarray(margins, np.float64), nan=-np.inf, posinf=np.inf)


@eqx.filter_jit
def _sampled_margins(
    model: Transformer, asked: PromptDistribution, key: Array, facts: Int[Array, " batch"]
) -> Margins:
    return _margins(model, asked.ask(key, facts, form="counts"))


@eqx.filter_jit
def _filled_margins(
    model: Transformer, asked: PromptDistribution, facts: Int[Array, " batch"], noise: Array
) -> Margins:
    return _margins(model, asked.fill(facts, noise))


def _margins(model: Transformer, prompts: Prompts) -> Margins:
    outputs = model(prompts.content)
    return smallest_margins(outputs, model.embeddings.outputs, model.targets(prompts.answers))
