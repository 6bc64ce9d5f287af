"""How well shapes know one table: the places of the map on the right of Figure 4."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from factmem.experiments.task import Task
from factmem.experiments.transformer_capacity import TransformerCapacityProblem

__all__ = ["PAPER_MAP", "QUICK_MAP", "ShapeMap"]


@dataclass(frozen=True)
class ShapeMap:
    """Shapes of one d and d_h with different heads and neurons, and the table they all learn.

    Args:
        dim, head_dim: d and d_h.
        subjects: S = R; D is 8.
        heads: every H.
        widths: every m.
        seeds: each place is trained with each of them.
        protocol: how it is trained, to the end unless all is stored.
    """

    dim: int
    head_dim: int
    subjects: int
    heads: Sequence[int]
    widths: Sequence[int]
    seeds: Sequence[int]
    protocol: Literal["quick", "paper"]

    def parameters(self, heads: int, width: int) -> int:
        """4·H·d·d_h + 2·m·d."""
        return self._question(heads, width).parameters

    def task(self, heads: int, width: int, seed: int) -> Task:
        """The training of one place; `best_accuracy` is what the map shows."""
        problem = self._question(heads, width)
        task = problem.task(self.subjects, seed)
        if self.protocol == "paper":  # the map has one rate
            changed = {"training": {**task.config["training"], "learning_rates": (1e-2,)}}
        else:
            most = {"heads": _half(self.heads, heads), "width": _half(self.widths, width)}
            changed = {"room": {**problem.room(self.subjects), **most}}
        return replace(task, config={**task.config, **changed})

    def _question(self, heads: int, width: int) -> TransformerCapacityProblem:
        return TransformerCapacityProblem(
            self.dim, heads, self.head_dim, width, protocol=self.protocol, patient=True
        )


def _half(sizes: Sequence[int], size: int) -> int:
    """What to compile for: the largest size, or the largest of the smaller half if that is enough.
    So the whole map has four programs."""
    middle = sizes[(len(sizes) - 1) // 2]
    return middle if size <= middle else sizes[-1]


QUICK_MAP = ShapeMap(16, 4, 15, (1, 6, 10, 16), (4, 32, 64, 112), (0, 1, 2), "quick")
PAPER_MAP = ShapeMap(
    32,
    8,
    32,
    (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32),
    (1, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    (64,),
    "paper",
)
"""The authors' grid, and the seed of their experiments with transformers."""
