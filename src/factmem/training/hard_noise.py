"""Hard noise: prompts of a batch whose noise tokens are those that a head scores highest.

With random noise a transformer hardly ever sees a prompt in which noise takes the attention from
subject and relation, and learns nothing about it. Two patterns for every head fill the T − 3 noise
positions: its strongest noise token alone, and its T − 3 strongest tokens, each once if there are
as many. They follow from the weights of a run and change with every step.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from factmem.facts.prompts import (
    PromptBatch,
    PromptContent,
    PromptDistribution,
    SplitPrompts,
    TokenPrompts,
    count_tokens,
)
from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.model import Transformer

__all__ = ["add_hard_noise", "hard_noise_key", "hard_noise_patterns", "replace_noise"]

_PATTERNS_PER_HEAD = 2


def hard_noise_key(batch_key: Key[Array, ""]) -> Key[Array, ""]:
    """Return the key of the hard noise in a batch that is sampled with `batch_key`."""
    return jr.fold_in(batch_key, 2)  # sampling splits the key into the subkeys 0 and 1


def add_hard_noise(
    batch: PromptBatch,
    model: Transformer,
    prompts: PromptDistribution,
    fraction: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> PromptBatch:
    """Replace the noise tokens of some prompts by a pattern of a random head.

    Args:
        batch: the prompts, in any form that a transformer takes.
        model: the transformer whose heads choose the noise.
        prompts: the distribution of the prompts.
        fraction: the probability that a prompt is changed.
        key: the random key.
    """
    size = batch.fact_ids.shape[0]
    chosen_key, pattern_key = jr.split(key)
    chosen = jr.uniform(chosen_key, (size,), fraction.dtype) < fraction
    # Heads of padding come last, and write nothing.
    heads = jnp.sum(jnp.any(model.weights.output != 0, axis=(1, 2)), dtype=jnp.int32)
    index = jr.randint(pattern_key, (size,), 0, _PATTERNS_PER_HEAD * heads, dtype=jnp.int32)
    patterns = hard_noise_patterns(model, prompts)
    index = jnp.where(chosen, index, -1)
    return batch._replace(content=replace_noise(batch.content, patterns, index, prompts.vocabulary))


def hard_noise_patterns(
    model: Transformer, prompts: PromptDistribution
) -> Int[Array, "patterns noise_positions"]:
    """Return the noise tokens of every pattern: row 2h repeats a token, row 2h + 1 does not."""
    vocabulary, positions = prompts.vocabulary, prompts.length - 3
    noise = vocabulary.noise if prompts.active is None else prompts.active.noise
    scores = model.noise_scores()
    # Padding has the embedding of EOS, which may score higher than any noise token.
    is_noise = jnp.arange(vocabulary.noise)[:, None] < noise
    scores = jnp.where(is_noise, scores, -jnp.inf)
    _, strongest = jax.lax.top_k(scores.T, max(1, min(positions, vocabulary.noise)))
    rank = jnp.arange(positions, dtype=jnp.int32) % jnp.minimum(strongest.shape[1], noise)
    ranks = jnp.stack([jnp.zeros_like(rank), rank])
    patterns = strongest[:, ranks].reshape(_PATTERNS_PER_HEAD * strongest.shape[0], positions)
    return patterns.astype(jnp.int32) + vocabulary.first_noise


def replace_noise(
    content: PromptContent,
    patterns: Int[Array, "patterns noise_positions"],
    index: Int[Array, " batch"],
    vocabulary: Vocabulary,
) -> PromptContent:
    """Replace the noise tokens of every prompt by a pattern, or by none if its index is negative.

    Args:
        content: the prompts, in any form that a transformer takes.
        patterns: token ids of T − 3 noise tokens.
        index: the pattern of every prompt.
        vocabulary: the tokens.
    """
    if not patterns.shape[1]:
        return content
    first, eos = vocabulary.first_noise, vocabulary.eos
    if isinstance(content, TokenPrompts):
        tokens = content.tokens
        is_noise = (tokens >= first) & (tokens < eos)
        number = jnp.cumsum(is_noise, axis=1, dtype=jnp.int32) - 1
        filled = jnp.take_along_axis(patterns[index], jnp.maximum(number, 0), axis=1)
        return TokenPrompts(jnp.where(is_noise & (index >= 0)[:, None], filled, tokens))
    if isinstance(content, SplitPrompts):
        return content._replace(shared=_replace_counts(content.shared, 0, patterns, index, first))
    return _replace_counts(content, first, patterns, index, first)


def _replace_counts(
    counts: Array,
    column: int,
    patterns: Int[Array, "patterns noise_positions"],
    index: Int[Array, " batch"],
    first_noise: int,
) -> Array:
    """Replace the counts of noise tokens, which stand between `column` and the last one, EOS."""
    noise = counts.shape[1] - 1 - column
    filled = count_tokens(patterns - first_noise, noise).astype(counts.dtype)[index]
    filled = jnp.where((index >= 0)[:, None], filled, counts[:, column:-1])
    return jnp.concatenate([counts[:, :column], filled, counts[:, -1:]], axis=1)
