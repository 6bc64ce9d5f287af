"""Heads as denoisers: each reads one block of tokens, and EOS where its block is absent.

A head's block B is a set of subjects or a set of relations; the compiler's heads may have both, and
read the one with the higher score. Its scores must put

    every token of B  above  EOS  above  every other token that a prompt can hold.

With scores far enough apart the head then reads the one token of its block that stands in the
prompt, or else EOS, whatever the noise. How far apart they are is the denoiser's margin: accuracy
on sampled prompts hides a token on the wrong side, the margin does not.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from factmem._core.errors import FactmemError
from factmem.facts.vocabulary import Vocabulary

__all__ = [
    "Blocks",
    "consecutive_blocks",
    "denoiser_margins",
    "largest_separable_block",
    "rank_one",
    "strongest_noise",
    "superposed_key",
    "tokens_read",
]

_MOST_ENTRIES = 2**31

Blocks = Bool[np.ndarray, "blocks prompt_tokens"]
"""Which tokens belong to which block."""


def consecutive_blocks(vocabulary: Vocabulary, size: int) -> Blocks:
    """Subjects and then relations, cut into as few blocks of at most so many tokens as possible.

    Blocks of one kind differ in size by one token at most.

    Raises:
        FactmemError: a size below 1.
    """
    if size < 1:
        raise FactmemError(f"a block holds at least one token, not {size}")
    count = math.ceil(vocabulary.subjects / size) + math.ceil(vocabulary.relations / size)
    if count * vocabulary.prompt_tokens > _MOST_ENTRIES:
        raise FactmemError(
            f"{count} blocks of {vocabulary.prompt_tokens} tokens are more than fit; larger blocks "
            f"would"
        )
    places = np.arange(vocabulary.prompt_tokens)
    groups = [
        *np.array_split(places[: vocabulary.subjects], math.ceil(vocabulary.subjects / size)),
        *np.array_split(
            places[vocabulary.first_relation : vocabulary.first_noise],
            math.ceil(vocabulary.relations / size),
        ),
    ]
    return np.stack([np.isin(places, group) for group in groups])


def superposed_key(
    tokens: Float[Array, "prompt_tokens dim"],
    blocks: Bool[Array | np.ndarray, "blocks prompt_tokens"],
    threshold: float = 0.5,
) -> Float[Array, "blocks dim"]:
    """The paper's key Σ_{z ∈ B} φ(z) + θ φ(EOS) of every block.

    Its scores are 1 for the block's tokens, θ for EOS and 0 for all others, each up to noise of
    variance (|B| + θ²)/d.
    """
    members = jnp.asarray(blocks, tokens.dtype)
    together = jnp.matmul(members, tokens, precision=jax.lax.Precision.HIGHEST)
    return together + threshold * tokens[-1][None, :]


def rank_one(
    keys: Float[Array, "heads dim"], query: Float[Array, " dim"], head_dim: int
) -> tuple[Float[Array, "heads head_dim dim"], Float[Array, "heads head_dim dim"]]:
    """Queries and keys with Kᵀ Q = key queryᵀ: the first row has it all, the others are zero."""
    heads, dim = keys.shape
    empty = jnp.zeros((heads, head_dim, dim), keys.dtype)
    rows = jnp.broadcast_to(query[None, :], (heads, dim))
    return empty.at[:, 0].set(rows), empty.at[:, 0].set(keys)


def denoiser_margins(
    scores: Float[Array, "prompt_tokens heads"], blocks: Blocks
) -> Float[np.ndarray, " heads"]:
    """The smallest gap of every head: block tokens over EOS, and EOS over every other token.

    Args:
        scores: s_h(z); EOS stands last.
        blocks: of every head, one row each.
    """
    table = np.asarray(scores, np.float64)
    gaps = (table - table[-1]).T
    signed = np.where(blocks, gaps, -gaps)
    signed[:, -1] = np.inf  # EOS itself
    return signed.min(axis=1)


def strongest_noise(
    scores: Float[Array, "prompt_tokens heads"], vocabulary: Vocabulary
) -> Int[np.ndarray, " noise_tokens"]:
    """The noise tokens that some head scores highest: what an attacker fills prompts with."""
    noise = np.asarray(scores)[vocabulary.first_noise : vocabulary.eos]
    return np.unique(noise.argmax(axis=0)) + vocabulary.first_noise


def tokens_read(
    scores: Float[np.ndarray, "prompt_tokens heads"], known: Int[np.ndarray, "facts known"]
) -> Int[np.ndarray, "facts heads"]:
    """Which of the known tokens of a prompt every head scores highest."""
    return np.take_along_axis(known, scores[known].argmax(axis=1), axis=1)


def largest_separable_block(dim: int, vocabulary: Vocabulary) -> int:
    """The largest block whose superposed key should keep every token on its side, at least 1.

    A gap has mean 1/2 and variance about 2|B|/d, and of all gaps, V for each of (S + R)/|B| heads,
    the smallest must be positive: |B| ≤ d / (16 log(V (S + R))).
    """
    gaps = vocabulary.prompt_tokens * (vocabulary.subjects + vocabulary.relations)
    return max(1, int(dim / (16 * math.log(gaps))))
