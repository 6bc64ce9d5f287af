"""What Figures 4 (left), 7, 8 and 9 share: facts stored by transformers against parameters.

These figures and the claim about them use the same capacity problems, so that they share runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from factmem.experiments.transformer_capacity import (
    ProtocolName,
    Scaling,
    TransformerCapacityProblem,
)
from factmem.paper.capacity_figure import CapacityLaw, CapacityLine, capacity_figure
from factmem.paper.figure import PaperFigure, Scale
from factmem.paper.memory_figures import QUICK_SEEDS, comma_separated, half_powers
from factmem.plotting.plot import Axis, Line
from factmem.transformer.shape import Shape

__all__ = [
    "OUR_ALLOCATION",
    "QUICK_RATIO",
    "TransformerGrid",
    "TransformerLine",
    "all_shapes",
    "transformer_figure",
]

AUTHORS_SEED = 64
PAPER_DIMS = half_powers(3, 7.5)
QUICK_RATIO = 1.12
"""Brackets of S at quick scale."""
OUR_ALLOCATION = (
    "Which of Figures 7, 8 and 9 has which heads and tables is our own allocation: the authors' "
    "code does not say."
)
_MAX_FACTS = 11_000
"""The authors' plots end here, so shapes expected to store more are left out."""
_COMPILED_DIMS = {"quick": (12, 16), "paper": half_powers(3, 6)}
_COMPILED_RATIO = 1.12
_RATIOS = (4.0, 2.0, 1.0, 0.5, 0.25)
_REFERENCE = Line(
    "authors' line, facts = 0.15 · parameters",
    (800.0, 100_000.0),
    (120.0, 15_000.0),
    kind="reference",
)
_LAW = CapacityLaw("facts ∝ parameters^slope", float, float)
_TABLES = {
    "s=r": "S = R and D = 8",
    "s=r2": "S = R² and D = 8",
    "d=s=r": "D = S = R",
}


@dataclass(frozen=True)
class TransformerLine:
    """Shapes with H·d_h = αd and m = βd, one for each d.

    Args:
        attention: α.
        mlp: β.
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
        """Return the capacity problem of this d; None if d_h or m would be zero.

        Following the authors, d_h = ⌊αd/H⌋ and m = ⌊βd⌋.
        """
        head_dim, width = int(self.attention * dim / self.heads), int(self.mlp * dim)
        if not head_dim or not width:
            return None
        return TransformerCapacityProblem(
            Shape(dim, self.heads, head_dim, width),
            None if self.scaling == "d=s=r" else 8,
            protocol=protocol,
            scaling=self.scaling,
            criterion=1.0 if protocol == "compiled" else 0.99,
            ratio=ratio,
        )

    def problems(
        self, dims: Sequence[int], protocol: ProtocolName, ratio: float = 1.05
    ) -> list[TransformerCapacityProblem]:
        """Return the capacity problems of several d, without those that have no shape."""
        problems = [self.problem(dim, protocol, ratio) for dim in dims]
        return [problem for problem in problems if problem is not None]


def all_shapes(heads: int, scaling: Scaling) -> tuple[TransformerLine, ...]:
    """Return the authors' 25 lines: α and β from 4 to 1/4."""
    return tuple(
        TransformerLine(attention, mlp, heads, scaling) for attention in _RATIOS for mlp in _RATIOS
    )


@dataclass(frozen=True)
class TransformerGrid:
    """The models of one figure.

    Args:
        quick: the one line at quick scale.
        quick_dims: its d, in the order of the search. The claim uses the first two.
        paper: the authors' lines.
    """

    quick: TransformerLine
    quick_dims: tuple[int, ...]
    paper: tuple[TransformerLine, ...]

    def heads(self, scale: Scale) -> int:
        """Return H at a scale."""
        return (self.quick if scale == "quick" else self.paper[0]).heads


def transformer_figure(
    name: str,
    title: str,
    description: str,
    grid: TransformerGrid,
    scale: Scale,
    *,
    compiled: bool = False,
    remark: str = "",
) -> PaperFigure:
    """Build one of the four figures.

    Args:
        name, title, description: as in `PaperFigure`.
        grid: its models.
        scale: `quick` has one line, three seeds and a training protocol of seconds; `paper` has
            the authors' 25 lines, their seed and their protocol.
        compiled: whether to add a line of compiled transformers.
        remark: the last sentence of the setup in the caption.
    """
    lines = _quick_lines(grid) if scale == "quick" else _paper_lines(grid)
    setup = _describe_quick(grid) if scale == "quick" else _describe_paper(grid)
    if compiled:
        lines.append(_compiled_line(grid.quick, scale))
        setup = f"{setup} {_describe_compiled(scale)}"
    return capacity_figure(
        name,
        title,
        description=description,
        lines=lines,
        axes=(Axis("parameters, 4·H·d·d_h + 2·m·d", "log"), Axis("facts stored, S·R", "log")),
        size=lambda problem: float(problem.parameters),
        law=_LAW,
        reference=_REFERENCE,
        setup=f"{setup} {remark}".strip(),
        explanation="",
    )


def _quick_lines(grid: TransformerGrid) -> list[CapacityLine]:
    problems = grid.quick.problems(grid.quick_dims, "quick", QUICK_RATIO)
    return [CapacityLine("trained, α = β = 1", problems, QUICK_SEEDS, with_limits=True)]


def _paper_lines(grid: TransformerGrid) -> list[CapacityLine]:
    """Return a line for each shape (α, β), up to the largest d that the authors' plot has."""
    lines = []
    for line in grid.paper:
        problems = [p for p in line.problems(PAPER_DIMS, "paper") if p.expected_facts <= _MAX_FACTS]
        group = f"α = {line.attention:g}"
        name = f"{group}, β = {line.mlp:g}"
        lines.append(CapacityLine(name, problems, (AUTHORS_SEED,), with_limits=True, group=group))
    return lines


def _compiled_line(line: TransformerLine, scale: Scale) -> CapacityLine:
    problems = line.problems(_COMPILED_DIMS[scale], "compiled", _COMPILED_RATIO)
    seeds = QUICK_SEEDS[:1] if scale == "quick" else QUICK_SEEDS
    return CapacityLine("compiled, 100% certified", problems, seeds, counts=False)


def _describe_quick(grid: TransformerGrid) -> str:
    line = grid.quick
    return (
        f"Transformers of d = {comma_separated(sorted(grid.quick_dims))} with H = {line.heads}, "
        f"d_h = ⌊d/H⌋ and m = d (α = β = 1), on random tables of {_TABLES[line.scaling]}, prompts "
        "of 32 tokens. Each table is trained on for 4,096 steps of 512 prompts (Muon, in seconds; "
        "the authors' training is longer and stores less) and counts as stored at 99% of 1,024 "
        f"test prompts. Seeds {comma_separated(QUICK_SEEDS)}; brackets of S to a ratio of "
        f"{QUICK_RATIO}."
    )


def _describe_paper(grid: TransformerGrid) -> str:
    line = grid.paper[0]
    return (
        f"The authors' grid: H = {line.heads}, H·d_h = αd and m = βd with α and β from 4 to 1/4, "
        f"d = {comma_separated(PAPER_DIMS)}, on random tables of {_TABLES[line.scaling]}; Adam at "
        "the best of three rates, 2^14 steps of 1,024 prompts, stored means 99%. Seed "
        f"{AUTHORS_SEED}, as theirs. Shapes expected to store more than {_MAX_FACTS:,} facts are "
        "left out, because their plot ends there."
    )


def _describe_compiled(scale: Scale) -> str:
    seeds = "one seed" if scale == "quick" else "three seeds"
    return (
        f"The weights of compiled transformers of d = {comma_separated(_COMPILED_DIMS[scale])} are "
        f"computed, not trained, with a certificate for every fact in any noise, {seeds}."
    )
