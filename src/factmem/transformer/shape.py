"""The size of a transformer. This module does not load jax."""

import operator
from dataclasses import dataclass

from factmem._core.errors import FactmemError

__all__ = ["Shape"]

_MINIMUM_SIZES = {"dim": 1, "heads": 1, "head_dim": 1, "width": 0}


@dataclass(frozen=True)
class Shape:
    """The size (d, H, d_h, m) of a transformer.

    Args:
        dim: embedding dimension d.
        heads: number of attention heads H.
        head_dim: dimension d_h of a head.
        width: number of hidden neurons m of the MLP; 0 means no MLP.

    Raises:
        FactmemError: a size is too small.
    """

    dim: int
    heads: int
    head_dim: int
    width: int = 0

    def __post_init__(self) -> None:
        for name, minimum in _MINIMUM_SIZES.items():
            size = operator.index(getattr(self, name))
            object.__setattr__(self, name, size)
            if size < minimum:
                raise FactmemError(f"{name} must be at least {minimum}, got {size}")

    @property
    def attention_parameters(self) -> int:
        """4·H·d·d_h: query, key, value and output matrices of all heads."""
        return 4 * self.heads * self.dim * self.head_dim

    @property
    def mlp_parameters(self) -> int:
        """2·m·d: input and output weights of all hidden neurons."""
        return 2 * self.width * self.dim

    @property
    def parameters(self) -> int:
        """4·H·d·d_h + 2·m·d, as the paper counts: without biases and embeddings."""
        return self.attention_parameters + self.mlp_parameters
