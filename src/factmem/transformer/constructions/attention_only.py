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
from jaxtyping import Array, Bool, Float, Key

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
    denoiser_margin,
    gaussian_maximum,
    partial_table_notes,
)
from factmem.transformer.constructions.denoiser import (
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
        FactmemError: d_h exceeds d, there are two embedding tables, or the block size is below 1.

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
    weights = _weights(
        embeddings.tokens,
        blocks,
        answer_sets(table),
        vocabulary,
        head_dim,
        jnp.asarray(beta),
        key=key,
    )
    shape = Shape(dim, len(blocks), head_dim)
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
    set_sizes = [len(np.unique(row[row >= 0])) for row in table.answer_of]
    answers = float(np.mean(set_sizes))
    sharing = float(np.mean(table.answer_counts[table.fact_ids[2]] - 1)) / max(
        table.subjects - 1, 1
    )
    spread = 1 / dim + (1 + 1 / dim) / head_dim
    others = (block_size - 1) * (sharing + answers / dim) * spread
    return others + (1 + (answers - 1) / dim) * (1 + 2 / head_dim) - 1


@partial(jax.jit, static_argnames=("vocabulary", "head_dim"))
def _weights(
    tokens: Float[Array, "tokens dim"],
    blocks: Bool[Array, "blocks prompt_tokens"],
    answer_sets: Float[Array, "content answers"],
    vocabulary: Vocabulary,
    head_dim: int,
    beta: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Weights:
    content, dim = vocabulary.first_noise, tokens.shape[1]
    prompt_tokens, answers = tokens[: vocabulary.prompt_tokens], tokens[vocabulary.first_answer :]
    block_keys = superposed_keys(prompt_tokens, blocks)
    query, key_matrix = rank_one_heads(block_keys, prompt_tokens[-1], head_dim)
    value = _orthogonal_to(prompt_tokens[-1], (blocks.shape[0], head_dim, dim), key=key)
    # O = (d/d_h) V Σ_{z ∈ B} φ(z) (Σ_{a ∈ A_z} φ(a))ᵀ
    read = jnp.einsum("hkd,zd->hkz", value, tokens[:content], precision=_EXACT)
    read = read * blocks[:, None, :content].astype(tokens.dtype)
    sums = jnp.matmul(answer_sets, answers, precision=_EXACT)
    output = dim / head_dim * jnp.einsum("hkz,zd->hkd", read, sums, precision=_EXACT)
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
