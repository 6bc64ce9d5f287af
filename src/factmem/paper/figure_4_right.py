"""Figure 4, right: heads and neurons are worth the same, above a minimum of attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from factmem._core.errors import FactmemError
from factmem.experiments.measurement import IndependentTasks
from factmem.experiments.task import Task
from factmem.experiments.transformer_capacity import TransformerCapacityProblem
from factmem.experiments.transformer_methods.trained import Train
from factmem.paper.claim import Claim, Finding, check_between
from factmem.paper.figure import PaperFigure, Scale, progress_note
from factmem.paper.memory_figures import comma_separated
from factmem.paper.registry import register_claim, register_figure
from factmem.paper.statistics import SeedResults, column
from factmem.plotting.plot import Axis, DataTable, HeatMap, Line, Plot
from factmem.transformer.shape import Shape

__all__ = [
    "PAPER_MAP",
    "QUICK_MAP",
    "ShapeMap",
    "attention_against_mlp",
    "figure_4_right",
    "smallest_stored",
]

_TITLE = "Figure 4, right: attention against MLP"
_FRONTIER = 4600 / 1024
"""2·m·d + H·d·d_h per fact, on the authors' red line."""
_MIN_ATTENTION = 40 / 64
"""H·d_h per subject and relation, where that line is vertical."""
_STORED = 0.99


@dataclass(frozen=True)
class ShapeMap:
    """Shapes of one d and d_h with different numbers of heads and neurons, and their table.

    Args:
        dim, head_dim: d and d_h.
        subjects: S = R; D is 8.
        heads: all H.
        widths: all m.
        seeds: each shape is trained with each of them.
        protocol: the training protocol; training stops early only if all facts are stored.
    """

    dim: int
    head_dim: int
    subjects: int
    heads: Sequence[int]
    widths: Sequence[int]
    seeds: Sequence[int]
    protocol: Literal["quick", "paper"]

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """Heads, width and seed of every run."""
        return [
            (heads, width, seed)
            for width in self.widths
            for heads in self.heads
            for seed in self.seeds
        ]

    def parameters(self, heads: int, width: int) -> int:
        """Return 4·H·d·d_h + 2·m·d."""
        return self._problem(heads, width).parameters

    def task(self, heads: int, width: int, seed: int) -> Task:
        """Return the training of one shape; the map shows its `best_accuracy`."""
        problem = self._problem(heads, width)
        spec = problem.spec(self.subjects, seed)
        assert isinstance(spec.method, Train)
        if self.protocol == "paper":  # the authors' map has one learning rate
            protocol = replace(spec.method.protocol, learning_rates=(1e-2,))
            method = replace(spec.method, protocol=protocol)
        else:
            padded = {"heads": _padded(self.heads, heads), "width": _padded(self.widths, width)}
            method = replace(spec.method, padding={**problem.padding(self.subjects), **padded})
        return problem.task_of(replace(spec, method=method))

    def _problem(self, heads: int, width: int) -> TransformerCapacityProblem:
        return TransformerCapacityProblem(
            Shape(self.dim, heads, self.head_dim, width),
            protocol=self.protocol,
            no_early_stopping=True,
        )


def _padded(sizes: Sequence[int], size: int) -> int:
    """Return the size to compile for: the largest, or the median if that is enough.

    So the whole map compiles four programs.
    """
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
_MAPS = {"quick": QUICK_MAP, "paper": PAPER_MAP}


@register_figure("4-right", order=(4, 2))
def figure_4_right(scale: Scale = "quick", shape_map: ShapeMap | None = None) -> PaperFigure:
    """Build the map of accuracy over heads and neurons.

    Args:
        scale: `paper` has the authors' 13 × 13 shapes of d = 32; `quick` has 4 × 4 of d = 16.
        shape_map: other shapes.
    """
    shapes = _MAPS[scale] if shape_map is None else shape_map
    tasks = [shapes.task(*run) for run in shapes.runs]

    def plot(results: Sequence[Mapping[str, Any]]) -> Plot:
        return _plot(shapes, results)

    return PaperFigure(
        "4-right",
        _TITLE,
        "Where are the facts? It hardly matters. The same table is learned by many heads and few "
        "neurons or by few heads and many neurons, because a parameter is worth about the same in "
        "both. But if the heads together have fewer dimensions than there are subjects and "
        "relations to distinguish, no MLP helps.",
        IndependentTasks(tuple(tasks)),
        plot,
        allows_partial=True,
    )


def smallest_stored(plot: Plot) -> tuple[int, float] | None:
    """Return the fewest parameters of a shape that stores the table, and the MLP's share."""
    columns = [plot.data.header.index(name) for name in ("best_accuracy", "parameters", "mlp")]
    rows = [[float(row[column] or 0) for column in columns] for row in plot.data.rows]
    sizes = sorted({(parameters, mlp) for _, parameters, mlp in rows})
    for parameters, mlp in sizes:
        accuracies = [accuracy for accuracy, *size in rows if size == [parameters, mlp]]
        if np.median(accuracies) >= _STORED:
            return int(parameters), mlp / parameters
    return None


def _plot(shapes: ShapeMap, results: Sequence[Mapping[str, Any]]) -> Plot:
    size = (len(shapes.widths), len(shapes.heads), len(shapes.seeds))
    accuracies = np.array([run.get("best_accuracy", np.nan) for run in results], float)
    accuracies = accuracies.reshape(size)
    if np.isnan(accuracies).all():
        raise FactmemError("figure 4-right: none of its runs is finished")
    medians = np.median(accuracies, axis=2)  # NaN where a seed is missing
    attention = [heads * shapes.dim * shapes.head_dim for heads in shapes.heads]
    mlp = [width * shapes.dim for width in shapes.widths]
    cells = HeatMap(
        Axis("attention, H·d·d_h", ticks=_ticks(attention)),
        Axis("MLP, m·d", ticks=_ticks(mlp)),
        _edges(attention),
        _edges(mlp),
        tuple(tuple(None if np.isnan(v) else float(v) for v in row) for row in medians),
        "accuracy",
        texts=tuple(tuple(map(_percent, row)) for row in medians) if max(size) <= 6 else None,
        hover_texts=tuple(
            tuple(
                f"{heads} heads, {width} neurons, {shapes.parameters(heads, width):,} parameters: "
                f"{_describe_accuracy(medians[y, x])}"
                for x, heads in enumerate(shapes.heads)
            )
            for y, width in enumerate(shapes.widths)
        ),
        lines=(_frontier(shapes, attention, mlp),),
    )
    data = DataTable.of(
        ("heads", "width", "seed", "attention", "mlp", "parameters", "best_accuracy"),
        [
            [
                *(heads, width, seed),
                *(shape.attention_parameters, shape.mlp_parameters, shape.parameters),
                run.get("best_accuracy"),
            ]
            for (heads, width, seed), run in zip(shapes.runs, results, strict=True)
            for shape in (Shape(shapes.dim, heads, shapes.head_dim, width),)
        ],
    )
    missing = int(np.isnan(accuracies).sum())
    done = accuracies.size - missing
    caption = _caption(shapes) + progress_note(done, accuracies.size, "runs")
    return Plot("4-right", _TITLE, (cells,), caption, data, columns=1)


def _percent(accuracy: float) -> str:
    return "" if np.isnan(accuracy) else f"{100 * accuracy:.0f}%"


def _describe_accuracy(accuracy: float) -> str:
    return "not measured" if np.isnan(accuracy) else f"accuracy {_percent(accuracy)}"


def _ticks(values: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """Return ticks at the centers of cells, far enough apart to be read."""
    ticks, last = [], -np.inf
    for value in values:
        if value - last >= 0.06 * values[-1]:
            ticks.append((float(value), f"{value:,}"))
            last = value
    return tuple(ticks)


def _edges(values: Sequence[int]) -> tuple[float, ...]:
    """Return the midpoints between values, and edges at the same distance beyond both ends."""
    if len(values) == 1:
        return (0.5 * values[0], 1.5 * values[0])
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    return (2 * values[0] - middles[0], *middles, 2 * values[-1] - middles[-1])


def _frontier(shapes: ShapeMap, attention: Sequence[int], mlp: Sequence[int]) -> Line:
    """Return the authors' red line, scaled by the number of facts and of tokens."""
    total = _FRONTIER * shapes.subjects**2
    floor = _MIN_ATTENTION * 2 * shapes.subjects * shapes.dim
    top, bottom = _edges(mlp)[-1], _edges(mlp)[0]
    x = (floor, floor, min(total - 2 * bottom, _edges(attention)[-1]))
    y = (top, (total - floor) / 2, (total - x[2]) / 2)
    return Line("the authors' frontier, scaled to this table", x, y, kind="reference")


def _caption(shapes: ShapeMap) -> str:
    training = {
        "quick": "4,096 steps of 512 prompts (Muon)",
        "paper": "2^14 steps of 1,024 prompts (Adam at rate 0.01)",
    }[shapes.protocol]
    seeds = ", median over seeds" if len(shapes.seeds) > 1 else ", seed"
    return (
        f"Transformers of d = {shapes.dim} and d_h = {shapes.head_dim} with H = "
        f"{comma_separated(shapes.heads)} heads and m = {comma_separated(shapes.widths)} neurons, "
        f"each trained on {shapes.subjects**2:,} facts (S = R = {shapes.subjects}, D = 8, T = 32) "
        f"for {training}: the best accuracy of all evaluations on 1,024 prompts{seeds} "
        f"{comma_separated(shapes.seeds)}. As in the paper the axes count H·d·d_h once, not four "
        "times, and m·d once, not twice. The line is the authors' own, 2·m·d + H·d·d_h = 4.5 per "
        "fact and H·d_h = 0.63 (S + R), which they drew for 1,024 facts."
    )


@register_claim("attention-against-mlp", order=(4, 60))
def attention_against_mlp(seeds: Sequence[int], shape_map: ShapeMap = QUICK_MAP) -> Claim:
    """Check that attention and MLP can replace each other, at four shapes of the map."""
    # (H, m): much attention, much MLP, little of both, too few heads.
    shapes = [(16, 4), (6, 64), (6, 4), (1, 112)]
    tasks = [shape_map.task(heads, width, seed) for heads, width in shapes for seed in seeds]

    def judge(results: SeedResults) -> Finding:
        accuracies = column(results, "best_accuracy").reshape(len(shapes), len(seeds))
        attention, mlp, neither, one_head = accuracies.mean(axis=1)
        too_few = (
            f"best accuracy of 1 head and 112 neurons, H·d_h = {shape_map.head_dim} against "
            f"S + R = {2 * shape_map.subjects}"
        )
        return Finding.from_checks(
            [
                check_between("best accuracy of 16 heads and 4 neurons", float(attention), 0.97),
                check_between("best accuracy of 6 heads and 64 neurons", float(mlp), 0.97),
                check_between("best accuracy of 6 heads and 4 neurons", float(neither), high=0.95),
                check_between(too_few, float(one_head), high=0.8),
            ]
        )

    return Claim(
        "attention-against-mlp",
        "Facts can be stored in the heads or in the MLP, one replacing the other, as long as "
        "H·d_h is at least about S + R.",
        "Figure 4, right",
        f"Transformers of d = {shape_map.dim} and d_h = {shape_map.head_dim} trained on "
        f"{shape_map.subjects**2} facts (S = R = {shape_map.subjects}, D = 8): four shapes of the "
        "map.",
        IndependentTasks(tuple(tasks)),
        judge,
    )
