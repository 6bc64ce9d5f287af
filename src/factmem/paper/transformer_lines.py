"""Lines of a figure: shapes that grow alike, with the facts that each stores.

Figures 4 (left), 7, 8 and 9 and the claim that they make ask the same problems, so that what one
has measured the other reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from factmem.experiments.transformer_capacity import (
    ProtocolName,
    Scaling,
    TransformerCapacityProblem,
)

__all__ = ["PAPER_LINES", "QUICK_DIMS", "QUICK_LINES", "QUICK_RATIO", "TransformerLine"]


@dataclass(frozen=True)
class TransformerLine:
    """Shapes with H·d_h = αd and m = βd, one for each d.

    Args:
        attention: α, the dimensions of all heads together over d.
        mlp: β, neurons over d.
        heads: H.
        scaling: how S, R and D grow together.

    Examples:
        >>> line = TransformerLine(1.0, 1.0)
        >>> line.problem(32, "paper").parameters
        6144
        >>> TransformerLine(0.25, 1.0).problem(8, "paper") is None
        True
    """

    attention: float
    mlp: float
    heads: int = 8
    scaling: Scaling = "s=r"

    def problem(
        self, dim: int, protocol: ProtocolName, ratio: float = 1.05
    ) -> TransformerCapacityProblem | None:
        """What the shape of this d stores; None where a head or the MLP has no dimension left.

        As the authors do, d_h = ⌊αd/H⌋ and m = ⌊βd⌋.
        """
        head_dim, width = int(self.attention * dim / self.heads), int(self.mlp * dim)
        if not head_dim or not width:
            return None
        return TransformerCapacityProblem(
            dim,
            self.heads,
            head_dim,
            width,
            None if self.scaling == "d=s=r" else 8,
            protocol=protocol,
            scaling=self.scaling,
            criterion=1.0 if protocol == "compiled" else 0.99,
            ratio=ratio,
        )

    def problems(
        self, dims: Sequence[int], protocol: ProtocolName, ratio: float = 1.05
    ) -> list[TransformerCapacityProblem]:
        """Of several d, those that have a shape."""
        found = [self.problem(dim, protocol, ratio) for dim in dims]
        return [each for each in found if each is not None]


QUICK_LINES = {
    "4-left": TransformerLine(1.0, 1.0),
    "7": TransformerLine(1.0, 1.0, heads=4),
    "8": TransformerLine(1.0, 1.0, scaling="s=r2"),
    "9": TransformerLine(1.0, 1.0, scaling="d=s=r"),
}
"""One shape a figure. Which of Figures 7 to 9 has which heads and scaling is not known for certain:
this is the natural order."""

QUICK_DIMS = {
    "4-left": (16, 32, 24, 12, 8),
    "7": (16, 36, 24, 12),
    "8": (16, 32, 24, 12),
    "9": (16, 32, 24, 12),
}
"""Four sizes over a factor of 9 in parameters, or more; first the two that the claim rests on. At
d = 8 random answers crowd each other so much that most tables cannot be stored by any model
(`limits`): one figure shows it."""
QUICK_RATIO = 1.12
"""Brackets of S."""

_SHARES = (4.0, 2.0, 1.0, 0.5, 0.25)


def _all_shapes(heads: int, scaling: Scaling) -> list[TransformerLine]:
    return [
        TransformerLine(attention, mlp, heads, scaling) for attention in _SHARES for mlp in _SHARES
    ]


PAPER_LINES = {
    "4-left": _all_shapes(8, "s=r"),
    "7": _all_shapes(16, "s=r"),
    "8": _all_shapes(16, "s=r2"),
    "9": _all_shapes(8, "d=s=r"),
}
"""All shapes (α, β). That S = R² was drawn with 16 heads is known from the name of a file."""
