"""The paper has two conventions, one in its theorems and one in its experiments."""

from dataclasses import dataclass
from typing import Literal

from factmem._core.errors import FactmemError

__all__ = ["EXPERIMENTS", "THEORY", "Convention"]


@dataclass(frozen=True)
class Convention:
    """What theorems and experiments do differently. Use `THEORY` or `EXPERIMENTS`.

    Args:
        shared_table: one embedding table for input and output, and decoding over the whole
            vocabulary; otherwise a second table for the answers, and decoding over them alone.
        scaled_scores: attention scores are divided by √d_h.
        mlp_bias: the MLP's hidden layer has a bias.
        embedding: how the tables are drawn.
    """

    shared_table: bool
    scaled_scores: bool
    mlp_bias: bool
    embedding: Literal["sphere", "gaussian"]

    def __post_init__(self) -> None:
        switches = (self.shared_table, self.scaled_scores, self.mlp_bias)
        if not all(isinstance(s, bool) for s in switches) or self.embedding not in (
            "sphere",
            "gaussian",
        ):
            raise FactmemError("a convention is three truth values and 'sphere' or 'gaussian'")


THEORY = Convention(shared_table=True, scaled_scores=False, mlp_bias=False, embedding="sphere")
"""Sections 4 and 5 of the paper: φ on the unit sphere, argmax over z in V of φ(z)ᵀ F(X)."""

EXPERIMENTS = Convention(
    shared_table=False, scaled_scores=True, mlp_bias=True, embedding="gaussian"
)
"""The authors' code: two frozen Gaussian tables, softmax over the answers alone."""
