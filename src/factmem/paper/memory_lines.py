"""What the figures of associative memories share: seeds, sizes, how facts are told."""

import math
from collections.abc import Sequence
from typing import Literal

from factmem._core.power_law import Number
from factmem.experiments.memory_capacity import (
    LinearCapacityProblem,
    MLPCapacityProblem,
    solve_n_log_n,
)
from factmem.paper.figure import FigureScale
from factmem.paper.memory_searches import COARSE
from factmem.paper.stored_facts import Law, StoredLine
from factmem.plotting.plot import Line

__all__ = [
    "AUTHORS_SEEDS",
    "QUICK_DIMS",
    "QUICK_SEEDS",
    "RATIO",
    "WITH_LOGARITHM",
    "dashed",
    "half_powers",
    "law",
    "listed",
    "matrix_lines",
    "mlp_lines",
    "mlp_ran",
]

AUTHORS_SEEDS = (0, 1, 11, 111, 42)
QUICK_SEEDS = (0, 1, 2)
QUICK_DIMS = (16, 24, 12, 8)
"""The first ones are guessed best, and the others are searched for from what they store."""
RATIO = {"quick": 1.1, "paper": 1.01}
"""How narrow brackets are: the authors end at 1.01."""

_BESIDE_RATIO = {"quick": COARSE, "paper": 1.05}
"""Of lines beside the paper's: the claims ask the same, and share the runs."""
WITH_LOGARITHM = "N ln N"


def half_powers(first: Number, last: Number) -> tuple[int, ...]:
    """⌊2^i⌋ for i in steps of a half, both ends included, as the authors space their sizes."""
    steps = round(2 * (last - first))
    return tuple(int(2 ** (first + step / 2)) for step in range(steps + 1))


def n_log_n(facts: float) -> float:
    """N ln N."""
    return facts * math.log(max(facts, 1.0))


def law(of: str, size: str) -> Law:
    """That N, or N ln N, grows as the size does."""
    told = f"{of} ∝ ({size})^slope"
    if of == WITH_LOGARITHM:
        return Law(told, n_log_n, solve_n_log_n)
    return Law(told, float, float)


def dashed(name: str, ends: tuple[Number, Number], factor: float, *, logarithm: bool) -> Line:
    """The authors' dashed line, size = factor · N ln N or factor · N between two N."""
    points = 40 if logarithm else 2
    step = (ends[1] / ends[0]) ** (1 / (points - 1))
    facts = [ends[0] * step**place for place in range(points)]
    sizes = [factor * (n_log_n(n) if logarithm else n) for n in facts]
    return Line(name, tuple(sizes), tuple(facts), kind="reference")


def matrix_lines(
    dims: Sequence[int], proved: Sequence[int], seeds: Sequence[int], scale: FigureScale
) -> list[StoredLine]:
    """Trained matrices, and the best there are."""
    trained = [LinearCapacityProblem(dim, "trained", 0.99, RATIO[scale]) for dim in dims]
    best = [LinearCapacityProblem(dim, "maximal", 1.0, _BESIDE_RATIO[scale]) for dim in proved]
    return [
        StoredLine("trained as in the paper, 99 %", trained, seeds),
        StoredLine("best of all matrices, proved, 100 %", best, seeds, counts=False),
    ]


def mlp_lines(
    widths: Sequence[int],
    dims: Sequence[int],
    fitted: Sequence[tuple[int, int]],
    outputs: int | None,
    seeds: Sequence[int],
    scale: FigureScale,
) -> list[StoredLine]:
    """Trained MLPs of m = width · d, a line for each, and fitted ones of some (d, m)."""
    how: Literal["trained", "quick"] = "trained" if scale == "paper" else "quick"
    ratio = RATIO[scale]
    trained = {
        width: [MLPCapacityProblem(dim, width * dim, how, outputs, 0.99, ratio) for dim in dims]
        for width in widths
    }
    best = [
        MLPCapacityProblem(dim, width, "fitted", outputs, 1.0, _BESIDE_RATIO[scale])
        for dim, width in fitted
    ]
    return [
        *(
            StoredLine(f"trained, m = {_times(width)}d, 99 %", problems, seeds)
            for width, problems in trained.items()
        ),
        StoredLine("fitted, 100 %", best, seeds, counts=False),
    ]


def mlp_ran(
    dims: Sequence[int], widths: Sequence[int], seeds: Sequence[int], scale: FigureScale
) -> str:
    """What was run for `mlp_lines`, in sentences."""
    steps = {"quick": "2^13 steps, a quarter of theirs,", "paper": "2^15 steps"}[scale]
    return (
        f"ReLU MLPs of d = {listed(sorted(dims))} with m/d = {listed(widths)}, trained as in the "
        f"paper (Adam at rate 0.03, {steps} on all associations, stored means 99 %), and fitted "
        "by L-BFGS at a few shapes, where stored means all of them with weights of 16 bits. Seeds "
        f"{listed(seeds)}; brackets to a ratio of {RATIO[scale]}."
    )


def listed(numbers: Sequence[int]) -> str:
    """Numbers with commas between them."""
    return ", ".join(map(str, numbers))


def _times(width: int) -> str:
    return "" if width == 1 else str(width)
