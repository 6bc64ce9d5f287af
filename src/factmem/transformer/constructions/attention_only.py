"""Theorem 3: a transformer of attention alone that recalls every fact.

Subjects and relations are cut into blocks, and each block has one head:

    K ᵀ Q = β (Σ_{z ∈ B} φ(z) + ½ φ(EOS)) φ(EOS)ᵀ                            the denoiser
    Oᵀ V = (d/d_h) Σ_{z ∈ B} (Σ_{a ∈ A_z} φ(a)) φ(z)ᵀ Σ_j v_j v_jᵀ            the memory

with d_h random unit vectors v_j orthogonal to φ(EOS), so that a head whose block is absent writes
nothing. A_s are the answers of a subject, A_r those of a relation. One subject head and one
relation head fire, and what they write together scores 2 for the answer in A_s ∩ A_r, 1 for other
answers in one of the sets and 0 for the rest, each up to noise.
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
    Construction,
    ambiguous_facts,
    answer_sets,
    check_embeddings,
    partial_note,
    union_bound,
)
from factmem.transformer.constructions.denoiser import (
    consecutive_blocks,
    largest_separable_block,
    rank_one,
    superposed_key,
)
from factmem.transformer.convention import THEORY
from factmem.transformer.model import Embeddings, Shape, Transformer, Weights

__all__ = ["attention_construction", "default_block", "memory_variance"]

_EXACT = jax.lax.Precision.HIGHEST


def attention_construction(
    key: Key[Array, ""],
    asked: PromptDistribution,
    embeddings: Embeddings,
    head_dim: int,
    *,
    block: int | None = None,
    beta: float = 400.0,
) -> Construction:
    """The weights of Theorem 3.

    It takes d ≳ max(R, D) and H d_h ≳ S + R, up to logarithms, for every fact to be recalled.

    Args:
        key: randomness of the directions v_j.
        asked: the facts and the tokens, noise included.
        embeddings: given, one table for tokens and answers.
        head_dim: d_h.
        block: how many tokens a head serves; `default_block` if left out.
        beta: β, how sharply heads attend.

    Raises:
        FactmemError: d_h above d, two embedding tables, or an empty block.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.facts import FactTable, PromptDistribution
        >>> from factmem.transformer import THEORY, Embeddings, recall
        >>> asked = PromptDistribution.of(FactTable.random(16, 4, 4))
        >>> phi = Embeddings.draw(jr.key(0), 512, asked.vocabulary, THEORY)
        >>> built = attention_construction(jr.key(1), asked, phi, 256, block=4)
        >>> built.model.shape.heads, recall(built.model, asked, jr.key(2)).accuracy
        (5, 1.0)
    """
    check_embeddings(embeddings, head_dim)
    table, vocabulary = asked.table, asked.vocabulary
    dim = embeddings.tokens.shape[1]
    block = default_block(table, vocabulary, dim, head_dim) if block is None else block
    blocks = consecutive_blocks(vocabulary, block)
    weights = _weights(
        key, embeddings.tokens, blocks, answer_sets(table), vocabulary, head_dim, jnp.asarray(beta)
    )
    shape = Shape(dim, len(blocks), head_dim)
    model = Transformer(weights, embeddings, shape, vocabulary, THEORY)
    return Construction(model, blocks, beta, partial_note(asked) + _shared_note(table))


def default_block(table: FactTable, vocabulary: Vocabulary, dim: int, head_dim: int) -> int:
    """The largest block for which denoiser and memory should both be right, at least 1.

    The memory's errors have the standard deviation √`memory_variance`, and the largest of K·|A|
    of them must stay below ½: a margin is 1 minus two such errors.
    """
    largest = largest_separable_block(dim, vocabulary)
    most = union_bound(table.facts * table.answers)
    fits = (
        size
        for size in range(largest, 1, -1)
        if memory_variance(table, dim, head_dim, size) ** 0.5 * most <= 0.5
    )
    return next(fits, 1)


def memory_variance(table: FactTable, dim: int, head_dim: int, block: int) -> float:
    """The variance of φ(a)ᵀ Oᵀ V φ(z), on average over the subjects z of a block.

    Of a right answer a ∈ A_z, for v_j Gaussian with entries N(0, 1/d): the other tokens of the
    block contribute, those that share the answer most.
    """
    sizes = [len(np.unique(row[row >= 0])) for row in table.answer_of]
    answers = float(np.mean(sizes))
    sharing = float(np.mean(table.answer_counts[table.fact_ids[2]] - 1)) / max(
        table.subjects - 1, 1
    )
    spread = 1 / dim + (1 + 1 / dim) / head_dim
    others = (block - 1) * (sharing + answers / dim) * spread
    return others + (1 + (answers - 1) / dim) * (1 + 2 / head_dim) - 1


@partial(jax.jit, static_argnames=("vocabulary", "head_dim"))
def _weights(
    key: Key[Array, ""],
    tokens: Float[Array, "tokens dim"],
    blocks: Bool[Array, "blocks prompt_tokens"],
    answer_sets: Float[Array, "content answers"],
    vocabulary: Vocabulary,
    head_dim: int,
    beta: Float[Array, ""],
) -> Weights:
    content, dim = vocabulary.first_noise, tokens.shape[1]
    prompt_tokens, answers = tokens[: vocabulary.prompt_tokens], tokens[vocabulary.first_answer :]
    query, key_rows = rank_one(superposed_key(prompt_tokens, blocks), prompt_tokens[-1], head_dim)
    value = _orthogonal_to(prompt_tokens[-1], key, (blocks.shape[0], head_dim, dim))
    # O = (d/d_h) V Σ_{z ∈ B} φ(z) (Σ_{a ∈ A_z} φ(a))ᵀ
    read = jnp.einsum("hkd,zd->hkz", value, tokens[:content], precision=_EXACT)
    read = read * blocks[:, None, :content].astype(tokens.dtype)
    sums = jnp.matmul(answer_sets, answers, precision=_EXACT)
    output = dim / head_dim * jnp.einsum("hkz,zd->hkd", read, sums, precision=_EXACT)
    nothing = jnp.zeros((0, dim), tokens.dtype)
    sharpness = jnp.sqrt(beta).astype(tokens.dtype)
    return Weights(sharpness * query, sharpness * key_rows, value, output, nothing, None, nothing)


def _orthogonal_to(
    direction: Float[Array, " dim"], key: Key[Array, ""], shape: tuple[int, int, int]
) -> Float[Array, "heads head_dim dim"]:
    """Unit vectors, uniform on the sphere within the complement of a direction."""
    unit = direction / jnp.linalg.norm(direction)
    drawn = normal(key, shape, direction.dtype)
    along = jnp.einsum("hkd,d->hk", drawn, unit, precision=_EXACT)
    across = drawn - along[:, :, None] * unit[None, None, :]
    return across / jnp.linalg.norm(across, axis=2, keepdims=True)


def _shared_note(table: FactTable) -> tuple[str, ...]:
    count = ambiguous_facts(table)
    if count == 0:
        return ()
    return (
        f"{count} of {table.facts} facts have another answer in A_s ∩ A_r, for relations share "
        f"answers: Theorem 3 says nothing about them.",
    )
