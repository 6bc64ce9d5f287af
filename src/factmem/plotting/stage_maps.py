"""Maps of the stages of training, beyond the paper; `benchmarks/dynamics.py` measures them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from factmem.plotting.plot import Axis, Chart, HeatMap, Level, Line, Plot

__all__ = ["TableStage", "learning_order", "softmax_losses", "stage_map"]

_FULL_COLOR = 0.55
"""Fraction of training at which the color of a stage is strongest."""
_DOT = 0.38
"""Distance of a dot from the center of its cell, in widths of the cell."""


@dataclass(frozen=True)
class TableStage:
    """The stage in which a model trained on one table knows only relations or only subjects.

    Args:
        subjects, relations: S and R of the table.
        rate_ratio: λ_r / λ_s.
        stage: `relations` or `subjects`, whichever is known alone; None if there is no such stage.
        fraction: the stage's fraction of the whole training.
        fraction_before: the stage's fraction of the time until the rest is learned.
        marginal_first: whether noise or EOS is learned before any relation.
    """

    subjects: int
    relations: int
    rate_ratio: float
    stage: str | None
    fraction: float
    fraction_before: float
    marginal_first: bool = False


def stage_map(stages: Sequence[TableStage], answers: int, title: str = "") -> Plot:
    """Plot where relations or subjects are known alone, and for how long.

    Args:
        stages: sizes may be missing; several tables of one size are averaged in the map.
        answers: D, for the line where relations and subjects are equally fast.
        title: title of the plot.
    """
    return Plot("stages", title, (_size_map(stages, answers), _ratio_chart(stages)))


def _size_map(stages: Sequence[TableStage], answers: int) -> HeatMap:
    subjects = sorted({stage.subjects for stage in stages})
    relations = sorted({stage.relations for stage in stages})
    cells = [
        [[t for t in stages if (t.subjects, t.relations) == (s, r)] for s in subjects]
        for r in relations
    ]
    known = np.geomspace(relations[0], relations[-1], 200)
    equal = known * np.sqrt((answers - 1) / (known - 1))
    lines = [Line("equal rates", _floats(equal), _floats(known), kind="reference")]
    marked = [
        (s, r)
        for r, row in zip(relations, cells, strict=True)
        for s, cell in zip(subjects, row, strict=True)
        if any(table.marginal_first for table in cell)
    ]
    if marked:
        corners = [(float(s * 2**_DOT), float(r * 2**_DOT)) for s, r in marked]
        x, y = zip(*corners, strict=True)
        lines.append(Line("noise or EOS is learned first", x, y, kind="points"))
    return HeatMap(
        Axis("subjects S", "log", tuple((float(s), str(s)) for s in subjects)),
        Axis("relations R", "log", tuple((float(r), str(r)) for r in relations)),
        _edges(subjects),
        _edges(relations),
        tuple(tuple(_signed_fraction(cell) for cell in row) for row in cells),
        "fraction of training",
        texts=tuple(tuple(_cell_text(cell) for cell in row) for row in cells),
        low=-_FULL_COLOR,
        high=_FULL_COLOR,
        lines=tuple(lines),
        value_ticks=(
            *((-f, f"relations {100 * f:.0f}%") for f in (0.5, 0.25)),
            (0.0, "none"),
            *((f, f"subjects {100 * f:.0f}%") for f in (0.25, 0.5)),
        ),
    )


def _edges(sizes: Sequence[int]) -> tuple[float, ...]:
    """Return the edges of cells around sizes that grow by factors of 2."""
    return (*(size / 2**0.5 for size in sizes), sizes[-1] * 2**0.5)


def _most_common_stage(cell: Sequence[TableStage]) -> str | None:
    stages = [table.stage for table in cell]
    return max(set(stages), key=stages.count)


def _signed_fraction(cell: Sequence[TableStage]) -> float | None:
    """Return the mean fraction, negative for relations: the color scale has two sides."""
    if not cell:
        return None
    fraction = float(np.mean([table.fraction for table in cell]))
    return {"relations": -fraction, "subjects": fraction, None: 0.0}[_most_common_stage(cell)]


def _cell_text(cell: Sequence[TableStage]) -> str:
    if not cell:
        return ""
    stage = _most_common_stage(cell)
    if stage is None:
        return "none"
    text = f"{100 * float(np.mean([table.fraction for table in cell])):.0f}%"
    return text if stage == "relations" else f"{text}\nsubjects"


def _ratio_chart(stages: Sequence[TableStage]) -> Chart:
    ratios = np.geomspace(0.25, 64, 400)
    predicted = 1 - np.minimum(ratios, 1 / ratios)
    lines = []
    for stage, name in (
        ("relations", "relations alone"),
        ("subjects", "subjects alone"),
        (None, "no such stage"),
    ):
        tables = [table for table in stages if table.stage == stage]
        if tables:
            x = tuple(table.rate_ratio for table in tables)
            lines.append(
                Line(name, x, tuple(table.fraction_before for table in tables), kind="points")
            )
    lines.append(
        Line("prediction for small α", _floats(ratios), _floats(predicted), kind="reference")
    )
    return Chart(
        Axis(
            "rate of relations / rate of subjects",
            "log",
            tuple((2.0**k, f"{2.0**k:g}") for k in range(-2, 7)),
            limits=(0.2, 80.0),
        ),
        Axis("stage / time until the rest is learned", limits=(-0.03, 1.03)),
        tuple(lines),
    )


def learning_order(
    tables: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], title: str = ""
) -> Plot:
    """Plot when each subject is learned against its probability.

    Args:
        tables: for each table, for each law of the subjects: probabilities and times.
        title: title of the plot.
    """
    panels = tuple(_order_chart(name, laws) for name, laws in tables.items())
    return Plot("order", title, panels, columns=len(panels), shared_legend=True)


def _order_chart(name: str, laws: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Chart:
    lines = [
        Line(law, tuple(probabilities), tuple(times), kind="points")
        for law, (probabilities, times) in laws.items()
    ]
    everything = [p for line in lines for p in line.x]
    ends = np.array([min(everything), max(everything)])
    inverse = lines[0].y[0] * lines[0].x[0] / ends
    lines.append(Line("time ∝ 1 / probability", _floats(ends), _floats(inverse), kind="reference"))
    return Chart(
        Axis("probability of the subject", "log"),
        Axis("flow time until it is learned", "log"),
        tuple(lines),
        title=name,
    )


def softmax_losses(
    runs: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]],
    levels: Mapping[str, float],
    title: str = "",
) -> Plot:
    """Plot losses of softmax heads, one line per seed.

    Args:
        runs: for each dimension, times and losses of every seed.
        levels: losses to mark, by name.
        title: title of the plot.
    """
    ticks = tuple((10.0**k, f"10{superscript}") for k, superscript in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹"))
    panels = tuple(
        Chart(
            Axis("flow time", "log", ticks),
            Axis("loss (nats)", limits=(0.0, None)),
            tuple(
                # A logarithmic axis cannot show time 0.
                Line(f"seed {seed}", tuple(times[1:]), tuple(losses[1:]), kind="curve")
                for seed, (times, losses) in enumerate(seeds)
            ),
            title=name,
            levels=tuple(Level(text, loss) for text, loss in levels.items()),
        )
        for name, seeds in runs.items()
    )
    return Plot("softmax", title, panels, columns=len(panels), shared_legend=True)


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(values.tolist())
