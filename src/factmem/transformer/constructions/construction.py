"""The result of a construction, and what Theorems 3 and 4 and the compiler share."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import coo_array, csr_array

from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.result import Result, Status
from factmem.facts.prompts import PromptDistribution
from factmem.facts.table import MISSING, FactTable
from factmem.facts.vocabulary import Vocabulary
from factmem.transformer.constructions.denoiser import Blocks, denoiser_margins
from factmem.transformer.model import Embeddings, Transformer
from factmem.transformer.shape import Shape

__all__ = [
    "ConstructionResult",
    "ConstructionStatus",
    "ambiguous_facts",
    "answer_sets",
    "check_embeddings",
    "check_head_dim",
    "check_memory",
    "denoiser_margin",
    "gaussian_maximum",
    "partial_table_notes",
    "score_blocks",
]

_MAX_SCORES, _MAX_COMMON = 2**24, 2**22
_MAX_BYTES = 2**32
"""Largest estimate of the memory of a construction."""


class ConstructionStatus(Status):
    """Whether the heads of a construction separate their blocks from all other tokens."""

    SEPARATED = "Every head ranks its block above EOS, and EOS above all other tokens."
    NOT_SEPARATED = "Some head ranks a token on the wrong side of EOS."

    @classmethod
    def of_margin(cls, denoiser_margin: float) -> "ConstructionStatus":
        """Return the status of a construction with this denoiser margin."""
        return cls.SEPARATED if denoiser_margin > 0 else cls.NOT_SEPARATED


@dataclass(frozen=True, kw_only=True)
class ConstructionResult(Result[Transformer]):
    """A transformer whose weights were constructed, not trained.

    Args:
        model: the transformer.
        status: whether the heads separate their blocks; for `CompileResult`, whether every fact is
            certified.
        blocks: the tokens that each head reads.
        beta: β, the factor of the scores.
        denoiser_margin: smallest gap between block tokens and EOS, and between EOS and all other
            tokens, in units of β.
        notes: what the construction does not guarantee for this table, one sentence each.
    """

    blocks: Blocks
    beta: float
    denoiser_margin: float
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, Any]:
        """The denoiser margin and β."""
        return {"denoiser_margin": self.denoiser_margin, "beta": self.beta}


def denoiser_margin(model: Transformer, blocks: Blocks, beta: float) -> float:
    """Compute the smallest denoiser margin of all heads, in units of β."""
    margins = [denoiser_margins(scores, blocks[heads]) for heads, scores in score_blocks(model)]
    return float(np.concatenate(margins).min()) / beta


def score_blocks(
    model: Transformer,
) -> Iterator[tuple[slice, Float[Array, "prompt_tokens heads"]]]:
    """Yield the scores of all tokens, some heads at a time, at most 2²⁴ scores."""
    size = max(1, _MAX_SCORES // model.vocabulary.prompt_tokens)
    for start in range(0, model.shape.heads, size):
        heads = slice(start, min(start + size, model.shape.heads))
        matrices = model.weights.query[heads], model.weights.key[heads]
        part = eqx.tree_at(lambda m: (m.weights.query, m.weights.key), model, matrices)
        yield heads, part.scores()


def answer_sets(table: FactTable) -> csr_array:
    """Return 1 where a ∈ A_z and else 0, for the subjects and then the relations z.

    The sparse [S + R, |A|] matrix has at most two entries per fact.
    """
    s, r, a = table.fact_ids
    rows, columns = np.concatenate([s, table.subjects + r]), np.concatenate([a, a])
    shape = (table.subjects + table.relations, table.answers)
    sets = coo_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape).tocsr()
    sets.data[:] = 1  # an answer of several facts was counted several times
    return sets


def ambiguous_facts(table: FactTable) -> int:
    """Count the facts (s, r) for which A_s ∩ A_r contains more than the answer a*(s, r).

    There are none if relations share no answers, the paper's Assumption 1. Sums over A_s and A_r,
    as in Theorem 3, cannot distinguish the answers of an ambiguous fact.

    Memory is 2²² numbers and a few per fact.
    """
    sets = answer_sets(table)
    relation_sets = sets[table.subjects :].T.tocsr()
    size, count = max(1, _MAX_COMMON // table.relations), 0
    for start in range(0, table.subjects, size):
        subjects = slice(start, min(start + size, table.subjects))
        common = (sets[subjects] @ relation_sets).toarray()
        count += int(((table.answer_of[subjects] != MISSING) & (common > 1)).sum())
    return count


def check_embeddings(embeddings: Embeddings, head_dim: int) -> None:
    """Check that Theorems 3 and 4 can use these embeddings.

    Raises:
        FactmemError: there are two tables, `head_dim` exceeds d, or d is below 2.
    """
    if embeddings.answers is not None:
        raise FactmemError(
            "Theorems 3 and 4 need one embedding table for tokens and answers, got two; use "
            "THEORY_CONVENTION"
        )
    check_head_dim(embeddings.dim, head_dim)
    if embeddings.dim < 2:
        raise ArgumentError("dim", f"must be at least 2, got {embeddings.dim}: values avoid φ(EOS)")


def check_memory(shape: Shape, vocabulary: Vocabulary) -> None:
    """Raise FactmemError if a construction of this shape needs more than 4 GiB of memory.

    The estimate is one byte for each head and prompt token, the blocks, and eight for each weight:
    while matrices are computed, their factors are in memory too.
    """
    needed = shape.heads * vocabulary.prompt_tokens + 8 * shape.parameters
    if needed > _MAX_BYTES:
        raise FactmemError(
            f"{shape.heads} heads with {shape.parameters:,} weights need about "
            f"{needed / 2**30:.1f} GiB of memory, at most {_MAX_BYTES / 2**30:.0f} GiB is allowed; "
            "use a larger block size or a smaller dim, head_dim or width"
        )


def check_head_dim(dim: int, head_dim: int) -> None:
    """Raise FactmemError unless 1 ≤ d_h ≤ d."""
    if not 1 <= head_dim <= dim:
        raise ArgumentError("head_dim", f"must be from 1 to dim = {dim}, got {head_dim}")


def partial_table_notes(prompts: PromptDistribution) -> tuple[str, ...]:
    """Return a note if some pairs of subject and relation have no fact."""
    pairs = prompts.vocabulary.subjects * prompts.vocabulary.relations
    if prompts.facts == pairs:
        return ()
    return (
        f"{pairs - prompts.facts} of {pairs} (subject, relation) pairs have no fact; the model's "
        "answers to them are arbitrary.",
    )


def gaussian_maximum(count: int) -> float:
    """Return √(2 log n), about the largest of n standard Gaussian variables."""
    return math.sqrt(2 * math.log(max(count, 2)))
