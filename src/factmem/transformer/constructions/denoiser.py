"""Denoising heads: each reads one block of tokens, and EOS if the prompt has none of its block.

The block B of a head is a set of subjects or a set of relations; heads of the compiler may have
both, and read the token with the higher score. The scores must satisfy

    every token of B  above  EOS  above  every other token that a prompt can contain.

If the gaps are large enough, the head reads the one token of its block that is in the prompt, or
else EOS, whatever the noise. The smallest gap is the denoiser margin. Accuracy on sampled prompts
does not reveal a token on the wrong side of EOS; the margin does.
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
    "check_block_memory",
    "consecutive_blocks",
    "denoiser_margins",
    "largest_separable_block",
    "rank_one_heads",
    "strongest_noise",
    "superposed_keys",
    "tokens_read",
]

_MAX_BLOCK_BYTES = 2**31
_MAX_ENTRIES = 2**22
"""Largest array of scores that is copied to float64 or gathered for facts at once."""

Blocks = Bool[np.ndarray, "blocks prompt_tokens"]
"""Whether each token belongs to each block."""


def consecutive_blocks(vocabulary: Vocabulary, block_size: int) -> Blocks:
    """Split the subjects, and then the relations, into as few blocks as possible.

    Sizes of subject blocks differ by at most one token, and so do sizes of relation blocks.

    Raises:
        FactmemError: the block size is below 1, or the blocks do not fit into memory.
    """
    if block_size < 1:
        raise FactmemError(f"block size must be at least 1, got {block_size}")
    subject_blocks = math.ceil(vocabulary.subjects / block_size)
    relation_blocks = math.ceil(vocabulary.relations / block_size)
    count = subject_blocks + relation_blocks
    check_block_memory(count, vocabulary, block_size)
    tokens = np.arange(vocabulary.first_noise)
    groups = [
        *np.array_split(tokens[: vocabulary.subjects], subject_blocks),
        *np.array_split(tokens[vocabulary.first_relation :], relation_blocks),
    ]
    blocks = np.zeros((count, vocabulary.prompt_tokens), bool)
    blocks[np.repeat(np.arange(count), [len(group) for group in groups]), tokens] = True
    return blocks


def check_block_memory(count: int, vocabulary: Vocabulary, block_size: int) -> None:
    """Raise FactmemError if blocks, one byte for each token, need more than 2 GiB."""
    needed = count * vocabulary.prompt_tokens
    if needed > _MAX_BLOCK_BYTES:
        raise FactmemError(
            f"{count} blocks of {vocabulary.prompt_tokens} tokens need {needed / 2**30:.1f} GiB of "
            f"memory, at most {_MAX_BLOCK_BYTES / 2**30:.0f} GiB is allowed; use a block size "
            f"above {block_size}"
        )


def superposed_keys(
    tokens: Float[Array, "prompt_tokens dim"],
    blocks: Blocks,
    threshold: float = 0.5,
) -> Float[Array, "blocks dim"]:
    """Compute the paper's key Σ_{z ∈ B} φ(z) + θ φ(EOS) of every block.

    Its scores are 1 for tokens of the block, θ for EOS and 0 for all others, plus noise of variance
    (|B| + θ²)/d.
    """
    size = max(1, _MAX_ENTRIES // blocks.shape[1])
    sums = []
    for start in range(0, len(blocks), size):
        part = blocks[start : start + size]
        used = np.flatnonzero(part.any(axis=0))
        members = jnp.asarray(part[:, used], tokens.dtype)
        sums.append(jnp.matmul(members, tokens[used], precision=jax.lax.Precision.HIGHEST))
    return jnp.concatenate(sums) + threshold * tokens[-1][None, :]


def rank_one_heads(
    keys: Float[Array, "heads dim"], query: Float[Array, " dim"], head_dim: int
) -> tuple[Float[Array, "heads head_dim dim"], Float[Array, "heads head_dim dim"]]:
    """Return query and key matrices with Kᵀ Q = key queryᵀ, nonzero in their first rows only."""
    heads, dim = keys.shape
    zeros = jnp.zeros((heads, head_dim, dim), keys.dtype)
    queries = jnp.broadcast_to(query[None, :], (heads, dim))
    return zeros.at[:, 0].set(queries), zeros.at[:, 0].set(keys)


def denoiser_margins(
    scores: Float[Array, "prompt_tokens heads"], blocks: Blocks
) -> Float[np.ndarray, " heads"]:
    """Compute each head's smallest gap: of block tokens over EOS, and of EOS over all others.

    Args:
        scores: s_h(z), EOS last.
        blocks: the block of every head.
    """
    table = np.asarray(scores)
    eos = table[-1].astype(np.float64)
    margins = np.full(len(blocks), np.inf)
    size = max(1, _MAX_ENTRIES // len(blocks))
    for start in range(0, len(table) - 1, size):  # without EOS itself
        part = slice(start, min(start + size, len(table) - 1))
        gaps = table[part] - eos[None, :]
        signed_gaps = np.where(blocks[:, part].T, gaps, -gaps)
        margins = np.minimum(margins, signed_gaps.min(axis=0))
    return margins


def strongest_noise(
    scores: Float[Array, "prompt_tokens heads"], vocabulary: Vocabulary
) -> Int[np.ndarray, " noise_tokens"]:
    """Return the noise tokens that some head scores highest: the adversarial noise."""
    noise = np.asarray(scores)[vocabulary.first_noise : vocabulary.eos]
    return np.unique(noise.argmax(axis=0)) + vocabulary.first_noise


def tokens_read(
    scores: Float[np.ndarray, "prompt_tokens heads"], known: Int[np.ndarray, "facts known"]
) -> Int[np.ndarray, "facts heads"]:
    """Return the known token of every fact that each head scores highest."""
    read = np.empty((len(known), scores.shape[1]), known.dtype)
    size = max(1, _MAX_ENTRIES // (known.shape[1] * scores.shape[1]))
    for start in range(0, len(known), size):
        part = known[start : start + size]
        read[start : start + size] = np.take_along_axis(part, scores[part].argmax(axis=1), axis=1)
    return read


def largest_separable_block(dim: int, vocabulary: Vocabulary) -> int:
    """Return the largest block size, at least 1, whose superposed keys should separate all tokens.

    A gap has mean 1/2 and variance about 2|B|/d. There are V gaps for each of (S + R)/|B| heads,
    and the smallest must be positive: |B| ≤ d / (16 log(V (S + R))).
    """
    gaps = vocabulary.prompt_tokens * (vocabulary.subjects + vocabulary.relations)
    return max(1, int(dim / (16 * math.log(gaps))))
