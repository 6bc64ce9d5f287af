"""Figure 4, right: heads and neurons are worth the same, above a floor of attention."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from factmem._core.errors import FactmemError
from factmem.experiments.measurement import IndependentTasks
from factmem.paper.figure import FigureScale, PaperFigure, so_far
from factmem.paper.memory_lines import listed
from factmem.paper.shape_map import PAPER_MAP, QUICK_MAP, ShapeMap
from factmem.plotting.plot import Axis, DataTable, HeatMap, Line, Plot

__all__ = ["figure_4_right", "smallest_stored"]

_MAPS = {"quick": QUICK_MAP, "paper": PAPER_MAP}
_TITLE = "Figure 4, right: attention against MLP"
_FRONTIER = 4600 / 1024
"""2·m·d + H·d·d_h per fact, on the authors' red line."""
_FLOOR = 40 / 64
"""H·d_h per subject and relation, where that line is vertical."""
_STORED = 0.99


def figure_4_right(scale: FigureScale = "quick", places: ShapeMap | None = None) -> PaperFigure:
    """A map of accuracy over heads and neurons.

    Args:
        scale: `paper` is the authors' 13 × 13 shapes of d = 32; `quick` a 4 × 4 map of d = 16.
        places: another map.
    """
    chosen = _MAPS[scale] if places is None else places
    tasks = [chosen.task(*place) for place in _places(chosen)]

    def plot(results: Sequence[Mapping[str, Any]]) -> Plot:
        return _plot(chosen, results)

    return PaperFigure(
        "4-right",
        _TITLE,
        "Where are the facts? It hardly matters. The same table is learned by many heads and few "
        "neurons or by few heads and many neurons, for a parameter is worth about the same in "
        "both. Only below a floor, when heads together have fewer dimensions than there are "
        "subjects and relations to tell apart, does no MLP help.",
        IndependentTasks(tuple(tasks)),
        plot,
        by_parts=True,
    )


def smallest_stored(plot: Plot) -> tuple[int, float] | None:
    """Of the shapes that store the table: the fewest parameters, and the MLP's share of them."""
    columns = [plot.data.header.index(name) for name in ("best_accuracy", "parameters", "mlp")]
    rows = [[float(row[column] or 0) for column in columns] for row in plot.data.rows]
    sizes = sorted({(parameters, mlp) for _, parameters, mlp in rows})
    for parameters, mlp in sizes:
        here = [accuracy for accuracy, *size in rows if size == [parameters, mlp]]
        if np.median(here) >= _STORED:
            return int(parameters), mlp / parameters
    return None


def _places(chosen: ShapeMap) -> list[tuple[int, int, int]]:
    return [
        (heads, width, seed)
        for width in chosen.widths
        for heads in chosen.heads
        for seed in chosen.seeds
    ]


def _plot(chosen: ShapeMap, results: Sequence[Mapping[str, Any]]) -> Plot:
    size = (len(chosen.widths), len(chosen.heads), len(chosen.seeds))
    each = np.array([run.get("best_accuracy", np.nan) for run in results], float).reshape(size)
    if np.isnan(each).all():
        raise FactmemError("figure 4-right: no run of it is there yet")
    middle = np.median(each, axis=2)  # none where a seed is missing
    attention = [heads * chosen.dim * chosen.head_dim for heads in chosen.heads]
    mlp = [width * chosen.dim for width in chosen.widths]
    few = max(size) <= 6
    cells = HeatMap(
        Axis("attention, H·d·d_h", ticks=_ticks(attention)),
        Axis("MLP, m·d", ticks=_ticks(mlp)),
        _edges(attention),
        _edges(mlp),
        tuple(tuple(None if np.isnan(v) else float(v) for v in row) for row in middle),
        "accuracy",
        texts=tuple(tuple(map(_percent, row)) for row in middle) if few else None,
        told=tuple(
            tuple(
                f"{heads} heads, {width} neurons, {chosen.parameters(heads, width):,} parameters: "
                f"{_told(middle[y, x])}"
                for x, heads in enumerate(chosen.heads)
            )
            for y, width in enumerate(chosen.widths)
        ),
        lines=(_frontier(chosen, attention, mlp),),
    )
    data = DataTable.of(
        ("heads", "width", "seed", "attention", "mlp", "parameters", "best_accuracy"),
        [
            [
                *(heads, width, seed),
                *(4 * heads * chosen.dim * chosen.head_dim, 2 * width * chosen.dim),
                chosen.parameters(heads, width),
                run.get("best_accuracy"),
            ]
            for (heads, width, seed), run in zip(_places(chosen), results, strict=True)
        ],
    )
    missing = int(np.isnan(each).sum())
    caption = _caption(chosen) + so_far(each.size - missing, each.size, "runs")
    return Plot("4-right", _TITLE, (cells,), caption, data, columns=1)


def _percent(share: float) -> str:
    return "" if np.isnan(share) else f"{100 * share:.0f} %"


def _told(share: float) -> str:
    return "not measured" if np.isnan(share) else f"{_percent(share)} right"


def _ticks(values: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """At the middles of cells, as far apart as can be read."""
    shown, last = [], -np.inf
    for value in values:
        if value - last >= 0.06 * values[-1]:
            shown.append((float(value), f"{value:,}"))
            last = value
    return tuple(shown)


def _edges(values: Sequence[int]) -> tuple[float, ...]:
    """Half-way between values, and as far beyond the first and the last."""
    if len(values) == 1:
        return (0.5 * values[0], 1.5 * values[0])
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    return (2 * values[0] - middles[0], *middles, 2 * values[-1] - middles[-1])


def _frontier(chosen: ShapeMap, attention: Sequence[int], mlp: Sequence[int]) -> Line:
    """The authors' red line, per fact and per token: down the floor, then one for the other."""
    total = _FRONTIER * chosen.subjects**2
    floor = _FLOOR * 2 * chosen.subjects * chosen.dim
    top, bottom = _edges(mlp)[-1], _edges(mlp)[0]
    x = (floor, floor, min(total - 2 * bottom, _edges(attention)[-1]))
    y = (top, (total - floor) / 2, (total - x[2]) / 2)
    return Line("the authors' frontier, scaled to this table", x, y, kind="reference")


def _caption(chosen: ShapeMap) -> str:
    seeds = listed(chosen.seeds)
    how = {
        "quick": "4,096 steps of 512 prompts (Muon)",
        "paper": "2^14 steps of 1,024 prompts (Adam at rate 0.01)",
    }[chosen.protocol]
    few = len(chosen.seeds) > 1
    return (
        f"Transformers of d = {chosen.dim} and d_h = {chosen.head_dim} with H = "
        f"{listed(chosen.heads)} heads and m = {listed(chosen.widths)} "
        f"neurons, each trained on {chosen.subjects**2:,} facts (S = R = {chosen.subjects}, "
        f"D = 8, T = 32) for {how}: the best accuracy of any check on 1,024 prompts"
        f"{', median over seeds' if few else ', seed'} {seeds}. As in the paper the axes count "
        "H·d·d_h once, not four times, and m·d once, not twice. The line is the authors' own, "
        "2·m·d + H·d·d_h = 4.5 per fact and H·d_h = 0.63 (S + R), which they drew for 1,024 facts."
    )
