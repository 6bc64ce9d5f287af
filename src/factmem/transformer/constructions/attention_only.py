"""Theorem 3: an attention-only transformer that recalls every fact.

Subjects and relations are split into blocks, with one head per block:

    K ᵀ Q = β (Σ_{z ∈ B} φ(z) + ½ φ(EOS)) φ(EOS)ᵀ                            the denoiser
    Oᵀ V = (d/d_h) Σ_{z ∈ B} (Σ_{a ∈ A_z} φ(a)) φ(z)ᵀ Σ_j v_j v_jᵀ            the memory

with d_h random unit vectors v_j orthogonal to φ(EOS), so that a head outputs zero if its block is
absent. A_s are the answers of a subject, A_r those of a relation. One subject head and one relation
head are active. The sum of their outputs scores 2 for the answer in A_s ∩ A_r, 1 for other answers
in one of the sets and 0 for all others, plus noise.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from factmem._core.random import normal
from factmem.facts.prompts import PromptDistribution
from factmem.facts.table import FactTable
from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.constructions.construction import (
    ConstructionResult,
    ConstructionStatus,
    ambiguous_facts,
    answer_sets,
    check_embeddings,
    check_memory,
    denoiser_margin,
    gaussian_maximum,
    partial_table_notes,
)
from factmem.transformer.constructions.denoiser import (
    Blocks,
    consecutive_blocks,
    largest_separable_block,
    rank_one_heads,
    superposed_keys,
)
from factmem.transformer.convention import THEORY_CONVENTION
from factmem.transformer.model import Embeddings, Transformer, Weights
from factmem.transformer.shape import Shape

__all__ = ["attention_construction", "default_block_size", "memory_variance"]

_EXACT = jax.lax.Precision.HIGHEST


def attention_construction(
    prompts: PromptDistribution,
    embeddings: Embeddings,
    head_dim: int,
    *,
    key: Key[Array, ""],
    block_size: int | None = None,
    beta: float = 400.0,
) -> ConstructionResult:
    """Construct the weights of Theorem 3.

    Every fact is recalled if d ≳ max(R, D) and H d_h ≳ S + R, up to logarithms.

    Args:
        prompts: the facts and the tokens, noise included.
        embeddings: one table for tokens and answers.
        head_dim: d_h.
        key: random key for the directions v_j.
        block_size: number of tokens per head; the default is `default_block_size`.
        beta: β, the factor of the scores.

    Raises:
        FactmemError: d_h exceeds d, there are two embedding tables, the block size is below 1, or
            the heads do not fit into memory.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.facts import FactTable, PromptDistribution
        >>> from factmem.transformer import THEORY_CONVENTION, Embeddings, recall
        >>> prompts = PromptDistribution.from_table(FactTable.random(16, 4, 4))
        >>> phi = Embeddings.draw(512, prompts.vocabulary, THEORY_CONVENTION, key=jr.key(0))
        >>> result = attention_construction(prompts, phi, 256, key=jr.key(1), block_size=4)
        >>> result.model.shape.heads, recall(result.model, prompts, key=jr.key(2)).accuracy
        (5, 1.0)
    """
    check_embeddings(embeddings, head_dim)
    table, vocabulary, dim = prompts.table, prompts.vocabulary, embeddings.dim
    if block_size is None:
        block_size = default_block_size(table, vocabulary, dim, head_dim)
    blocks = consecutive_blocks(vocabulary, block_size)
    shape = Shape(dim, len(blocks), head_dim)
    check_memory(shape, vocabulary)
    block_keys = superposed_keys(embeddings.tokens[: vocabulary.prompt_tokens], blocks)
    weights = _weights(
        embeddings.tokens,
        block_keys,
        _members(blocks),
        _answer_sums(table, embeddings.tokens[vocabulary.first_answer :]),
        vocabulary,
        head_dim,
        jnp.asarray(beta),
        key=key,
    )
    model = Transformer(weights, embeddings, shape, vocabulary, THEORY_CONVENTION)
    margin = denoiser_margin(model, blocks, beta)
    return ConstructionResult(
        model=model,
        status=ConstructionStatus.of_margin(margin),
        blocks=blocks,
        beta=beta,
        denoiser_margin=margin,
        notes=partial_table_notes(prompts) + _ambiguity_notes(table),
    )


def default_block_size(table: FactTable, vocabulary: Vocabulary, dim: int, head_dim: int) -> int:
    """Return the largest block size, at least 1, that both denoiser and memory should tolerate.

    The memory's errors have standard deviation √`memory_variance`, and the largest of K·|A| errors
    must stay below ½: a margin is 1 minus two errors.
    """
    largest = largest_separable_block(dim, vocabulary)
    deviations = gaussian_maximum(table.facts * table.answers)
    tolerated = (
        size
        for size in range(largest, 1, -1)
        if memory_variance(table, dim, head_dim, size) ** 0.5 * deviations <= 0.5
    )
    return next(tolerated, 1)


def memory_variance(table: FactTable, dim: int, head_dim: int, block_size: int) -> float:
    """Compute the variance of φ(a)ᵀ Oᵀ V φ(z) for a ∈ A_z, averaged over the subjects z of a block.

    It assumes Gaussian v_j with entries N(0, 1/d). The other tokens of the block cause it, most of
    all those that share the answer.
    """
    answers = answer_sets(table)[: table.subjects].nnz / table.subjects
    sharing = float(np.mean(table.answer_counts[table.fact_ids[2]] - 1)) / max(
        table.subjects - 1, 1
    )
    spread = 1 / dim + (1 + 1 / dim) / head_dim
    others = (block_size - 1) * (sharing + answers / dim) * spread
    return others + (1 + (answers - 1) / dim) * (1 + 2 / head_dim) - 1


def _members(blocks: Blocks) -> Int[np.ndarray, "blocks size"]:
    """Return the tokens of every block, and the last token, EOS, where a block has fewer."""
    rows, tokens = np.nonzero(blocks)
    sizes = np.bincount(rows, minlength=len(blocks))
    members = np.full((len(blocks), sizes.max()), blocks.shape[1] - 1, np.int32)
    members[np.arange(sizes.max())[None, :] < sizes[:, None]] = tokens
    return members


def _answer_sums(
    table: FactTable, answers: Float[Array, "answers dim"]
) -> Float[np.ndarray, "content dim"]:
    """Compute Σ_{a ∈ A_z} φ(a) of every subject and relation z."""
    return answer_sets(table) @ np.asarray(answers)


@partial(jax.jit, static_argnames=("vocabulary", "head_dim"))
def _weights(
    tokens: Float[Array, "tokens dim"],
    block_keys: Float[Array, "blocks dim"],
    members: Int[Array, "blocks size"],
    answer_sums: Float[Array, "content dim"],
    vocabulary: Vocabulary,
    head_dim: int,
    beta: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Weights:
    """Compute all matrices; besides them, memory is a few numbers per entry of φ."""
    heads, dim = block_keys.shape
    eos = tokens[vocabulary.eos]
    query, key_matrix = rank_one_heads(block_keys, eos, head_dim)
    value = _orthogonal_to(eos, (heads, head_dim, dim), key=key)
    # O = (d/d_h) V Σ_{z ∈ B} φ(z) (Σ_{a ∈ A_z} φ(a))ᵀ, where EOS stands for no member.
    sums = jnp.concatenate([answer_sums, jnp.zeros((1, dim), tokens.dtype)])
    sums = sums[jnp.minimum(members, answer_sums.shape[0])]
    read = jnp.einsum("hkd,hzd->hkz", value, tokens[members], precision=_EXACT)
    output = dim / head_dim * jnp.einsum("hkz,hzd->hkd", read, sums, precision=_EXACT)
    no_mlp = jnp.zeros((0, dim), tokens.dtype)
    sharpness = jnp.sqrt(beta).astype(tokens.dtype)
    return Weights(sharpness * query, sharpness * key_matrix, value, output, no_mlp, None, no_mlp)


def _orthogonal_to(
    direction: Float[Array, " dim"], shape: tuple[int, int, int], *, key: Key[Array, ""]
) -> Float[Array, "heads head_dim dim"]:
    """Draw unit vectors, uniform on the sphere in the orthogonal complement of a direction."""
    unit = direction / jnp.linalg.norm(direction)
    vectors = normal(key, shape, direction.dtype)
    along = jnp.einsum("hkd,d->hk", vectors, unit, precision=_EXACT)
    across = vectors - along[:, :, None] * unit[None, None, :]
    return across / jnp.linalg.norm(across, axis=2, keepdims=True)


def _ambiguity_notes(table: FactTable) -> tuple[str, ...]:
    count = ambiguous_facts(table)
    if count == 0:
        return ()
    return (
        f"{count} of {table.facts} facts have another answer in A_s ∩ A_r because relations share "
        "answers; Theorem 3 does not cover them.",
    )
