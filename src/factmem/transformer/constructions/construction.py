"""The result of a construction, and what Theorems 3 and 4 and the compiler share."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from factmem._core.errors import ArgumentError, FactmemError
from factmem._core.result import Result, Status
from factmem.facts.prompts import PromptDistribution
from factmem.facts.table import MISSING, FactTable
from factmem.transformer.constructions.denoiser import Blocks, denoiser_margins
from factmem.transformer.model import Embeddings, Transformer

__all__ = [
    "ConstructionResult",
    "ConstructionStatus",
    "ambiguous_facts",
    "answer_sets",
    "check_embeddings",
    "check_head_dim",
    "denoiser_margin",
    "gaussian_maximum",
    "partial_table_notes",
    "score_blocks",
]

_MAX_SCORES = 2**24


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
        yield heads, model.scores(heads)


def answer_sets(table: FactTable) -> Float[np.ndarray, "content answers"]:
    """Return 1 where a ∈ A_z and else 0, for the subjects and then the relations z."""
    s, r, a = table.fact_ids
    sets = np.zeros((table.subjects + table.relations, table.answers), np.float32)
    sets[s, a] = 1
    sets[table.subjects + r, a] = 1
    return sets


def ambiguous_facts(table: FactTable) -> int:
    """Count the facts (s, r) for which A_s ∩ A_r contains more than the answer a*(s, r).

    There are none if relations share no answers, the paper's Assumption 1. Sums over A_s and A_r,
    as in Theorem 3, cannot distinguish the answers of an ambiguous fact.
    """
    sets = answer_sets(table)
    common = sets[: table.subjects] @ sets[table.subjects :].T
    return int(((table.answer_of != MISSING) & (common > 1)).sum())


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
