"""What the figures of associative memories share: seeds, sizes, how facts are told."""

import math
from collections.abc import Sequence

from factmem.capacity.memories import LinearQuestion, MLPQuestion
from factmem.figures.plot import Line
from factmem.figures.stored_facts import Law, StoredLine

__all__ = [
    "AUTHORS_SEEDS",
    "QUICK_DIMS",
    "QUICK_SEEDS",
    "RATIO",
    "WITH_LOGARITHM",
    "dashed",
    "half_powers",
    "law",
    "matrix_lines",
    "mlp_lines",
]

AUTHORS_SEEDS = (0, 1, 11, 111, 42)
QUICK_SEEDS = (0, 1, 2)
QUICK_DIMS = (8, 12, 16, 24)
RATIO = {"quick": 1.05, "paper": 1.01}
"""How narrow brackets are: the authors end at 1.01."""

_FITTED_RATIO = 1.1
"""Fits differ from seed to seed by more than this."""
WITH_LOGARITHM = "N ln N"


def half_powers(first: float, last: float) -> tuple[int, ...]:
    """⌊2^i⌋ for i in steps of a half, both ends included, as the authors space their sizes."""
    steps = round(2 * (last - first))
    return tuple(int(2 ** (first + step / 2)) for step in range(steps + 1))


def n_log_n(facts: float) -> float:
    """N ln N."""
    return facts * math.log(max(facts, 1.0))


def law(of: str, size: str) -> Law:
    """That N, or N ln N, grows as the size does."""
    return Law(f"{of} ∝ ({size})^slope", n_log_n if of == WITH_LOGARITHM else float)


def dashed(name: str, ends: tuple[float, float], factor: float, *, logarithm: bool) -> Line:
    """The authors' dashed line, size = factor · N ln N or factor · N between two N."""
    points = 40 if logarithm else 2
    step = (ends[1] / ends[0]) ** (1 / (points - 1))
    facts = [ends[0] * step**place for place in range(points)]
    sizes = [factor * (n_log_n(n) if logarithm else n) for n in facts]
    return Line(name, tuple(sizes), tuple(facts), kind="reference")


def matrix_lines(
    dims: Sequence[int], proved: Sequence[int], seeds: Sequence[int], ratio: float
) -> list[StoredLine]:
    """Trained matrices, and the best there are."""
    trained = [LinearQuestion(dim, "trained", 0.99, ratio) for dim in dims]
    best = [LinearQuestion(dim, "maximal", 1.0, ratio) for dim in proved]
    return [
        StoredLine("trained as in the paper, 99 %", trained, seeds),
        StoredLine("best of all matrices, proved, 100 %", best, seeds, counts=False),
    ]


def mlp_lines(
    widths: Sequence[int],
    dims: Sequence[int],
    fitted: Sequence[int],
    outputs: int | None,
    seeds: Sequence[int],
    ratio: float,
) -> list[StoredLine]:
    """Trained MLPs of m = width · d, a line for each, and fitted ones of the first width."""
    trained = {
        width: [MLPQuestion(dim, width * dim, "trained", outputs, 0.99, ratio) for dim in dims]
        for width in widths
    }
    best = [
        MLPQuestion(dim, widths[0] * dim, "fitted", outputs, 1.0, max(ratio, _FITTED_RATIO))
        for dim in fitted
    ]
    return [
        *(
            StoredLine(f"trained as in the paper, m = {_times(width)}d, 99 %", questions, seeds)
            for width, questions in trained.items()
        ),
        StoredLine(f"fitted, m = {_times(widths[0])}d, 100 %", best, seeds, counts=False),
    ]


def _times(width: int) -> str:
    return "" if width == 1 else str(width)
