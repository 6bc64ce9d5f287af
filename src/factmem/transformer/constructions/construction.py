"""What a construction gives: a transformer, what its heads read, and what holds for it."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from factmem._core.errors import FactmemError
from factmem.facts.prompts import PromptDistribution
from factmem.facts.table import MISSING, FactTable
from factmem.transformer.constructions.denoiser import Blocks, denoiser_margins
from factmem.transformer.model import Embeddings, Transformer

__all__ = [
    "Construction",
    "ambiguous_facts",
    "answer_sets",
    "check_embeddings",
    "check_head_dim",
    "partial_note",
    "union_bound",
]


@dataclass(frozen=True)
class Construction:
    """A transformer that was built, not trained.

    Args:
        model: with its weights.
        blocks: the tokens that each of its heads reads.
        beta: β, what the keys are multiplied by.
        notes: what is guaranteed and what is not, one sentence each.
    """

    model: Transformer
    blocks: Blocks
    beta: float
    notes: tuple[str, ...] = ()

    @property
    def denoiser_margin(self) -> float:
        """The smallest gap of block tokens over EOS and of EOS over all others, in units of β."""
        return float(denoiser_margins(self.model.scores(), self.blocks).min()) / self.beta


def answer_sets(table: FactTable) -> Float[np.ndarray, "content answers"]:
    """1 where a ∈ A_z, for the subjects and then the relations z."""
    s, r, a = table.fact_ids
    sets = np.zeros((table.subjects + table.relations, table.answers), np.float32)
    sets[s, a] = 1
    sets[table.subjects + r, a] = 1
    return sets


def ambiguous_facts(table: FactTable) -> int:
    """Facts (s, r) for which A_s ∩ A_r holds more than the answer a*(s, r).

    There are none where relations share no answers: the paper's Assumption 1. Sums over A_s and
    A_r alone, as in Theorem 3, cannot tell the answers of an ambiguous fact apart.
    """
    sets = answer_sets(table)
    common = sets[: table.subjects] @ sets[table.subjects :].T
    return int(((table.answer_of != MISSING) & (common > 1)).sum())


def check_embeddings(embeddings: Embeddings, head_dim: int) -> None:
    """Whether Theorems 3 and 4 can be built on these embeddings.

    Raises:
        FactmemError: two tables instead of one, or heads of more dimensions than embeddings.
    """
    if embeddings.answers is not None:
        raise FactmemError("the theorems have one embedding table for tokens and answers")
    dim = embeddings.tokens.shape[1]
    check_head_dim(dim, head_dim)
    if dim < 2:
        raise FactmemError("values are orthogonal to EOS, which needs d of at least 2")


def check_head_dim(dim: int, head_dim: int) -> None:
    """Raises FactmemError unless heads of this dimension fit into d dimensions."""
    if not 1 <= head_dim <= dim:
        raise FactmemError(
            f"heads have from 1 to d = {dim} dimensions, not {head_dim}; "
            f"d_h = {head_dim} needs d of at least {head_dim}"
        )


def partial_note(asked: PromptDistribution) -> tuple[str, ...]:
    """What is guaranteed where questions are open."""
    questions = asked.vocabulary.subjects * asked.vocabulary.relations
    if asked.facts == questions:
        return ()
    return (
        f"{questions - asked.facts} of {questions} questions have no fact: "
        "what is answered to them is not defined.",
    )


def union_bound(events: int) -> float:
    """√(2 log n): how many standard deviations the largest of n Gaussian errors comes to."""
    return math.sqrt(2 * math.log(max(events, 2)))
