"""The two conventions of the paper: one for its theorems, one for its experiments."""

from dataclasses import dataclass
from typing import Literal

from factmem._core.errors import FactmemError

__all__ = ["EXPERIMENT_CONVENTION", "THEORY_CONVENTION", "Convention"]


@dataclass(frozen=True)
class Convention:
    """How a transformer embeds, attends and decodes.

    Use `THEORY_CONVENTION` or `EXPERIMENT_CONVENTION`.

    Args:
        shared_table: one embedding table for inputs and outputs, and decoding over the whole
            vocabulary. Otherwise the answers have their own table, and decoding is over answers
            only.
        scaled_scores: attention scores are divided by √d_h.
        mlp_bias: the hidden layer of the MLP has a bias.
        embedding: the distribution of random embeddings.

    Raises:
        FactmemError: a flag is not a bool, or the embedding distribution is unknown.
    """

    shared_table: bool
    scaled_scores: bool
    mlp_bias: bool
    embedding: Literal["sphere", "gaussian"]

    def __post_init__(self) -> None:
        for name in ("shared_table", "scaled_scores", "mlp_bias"):
            if not isinstance(getattr(self, name), bool):
                raise FactmemError(f"{name} must be a bool, got {getattr(self, name)!r}")
        if self.embedding not in ("sphere", "gaussian"):
            raise FactmemError(
                f"embedding must be 'sphere' or 'gaussian', got {str(self.embedding)!r}"
            )


THEORY_CONVENTION = Convention(
    shared_table=True, scaled_scores=False, mlp_bias=False, embedding="sphere"
)
"""Sections 4 and 5 of the paper: φ on the unit sphere, argmax over z in V of φ(z)ᵀ F(X)."""

EXPERIMENT_CONVENTION = Convention(
    shared_table=False, scaled_scores=True, mlp_bias=True, embedding="gaussian"
)
"""The authors' code: two frozen Gaussian tables, softmax over the answers only."""
