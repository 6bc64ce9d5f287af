"""Losses against flow time with the stages of training shaded, as in Figure 5."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from factmem.plotting.drawing import STYLE, label_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from factmem.dynamics import Curves, Population, Stages

__all__ = ["AUTHORS_STAGES", "flow_curves"]

AUTHORS_STAGES = (180.0, 500.0, 819.2)
"""Where the stages end that the authors shade by hand on the left of Figure 5, in flow time."""

_NAMES = ("initialization", "hallucination", "convergence")
_SHADES = ("0.95", "0.86", "0.95")


def flow_curves(
    curves: "Curves",
    stages: "Stages",
    questions: "Population",
    *,
    title: str = "",
    authors: bool = False,
    beside: "Curves | None" = None,
    logarithmic: bool = False,
) -> Figure:
    """Draws total, relation-only and subject-only loss, with our stages shaded.

    Args:
        curves: what is drawn.
        stages: those found in it.
        questions: for the levels of the loss.
        title: plain text.
        authors: whether the authors' hand-drawn stages are shown above ours.
        beside: the exact flow, drawn thin beside stochastic descent.
        logarithmic: whether times are, over three decades.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(5.6, 3.6))
        axes = figure.subplots()
        end = float(curves.times[-1])
        seen = curves.seen
        _levels(axes, questions)
        for name, values in (
            ("total", seen.loss),
            ("relation only", seen.relation_loss),
            ("subject only", seen.subject_loss),
        ):
            axes.plot(curves.times, np.asarray(values), label=name)
        if beside is not None:
            within = beside.times <= end
            axes.plot(
                beside.times[within],
                beside.loss[within],
                color="0.1",
                linestyle=(0, (1, 1.5)),
                linewidth=1.2,
                label="total, exact flow",
            )
        axes.set_xscale("log" if logarithmic else "linear")
        axes.set_xlim(end / 1000 if logarithmic else 0.0, end)
        top = 1.22 * float(np.log(questions.given_relation.shape[1]))
        ours = _ends(stages, end)
        _shade(axes, ours, top, "ours" if authors else "")
        if authors:
            _mark(axes, AUTHORS_STAGES, 1.09 * top, end)
        axes.set_ylim(0, (1.17 if authors else 1.0) * top)
        axes.set_xlabel("flow time (steps × rate)")
        axes.set_ylabel("loss (nats)")
        figure.legend(loc="outside lower center", ncols=4)
        figure.suptitle(title, parse_math=False)
        return figure


def _ends(stages: "Stages", end: float) -> "list[tuple[float, float, int]]":
    """From, to and number of the stages that there are."""
    if stages.init_end is None or stages.hallucination is None:
        return []
    over = stages.hallucination.end
    found = [(0.0, stages.init_end, 0), (stages.init_end, end if over is None else over, 1)]
    return found if over is None else [*found, (over, end, 2)]


def _shade(
    axes: "Axes", spans: "Sequence[tuple[float, float, int]]", top: float, whose: str
) -> None:
    for start, stop, number in spans:
        axes.axvspan(start, stop, color=_SHADES[number], zorder=0, linewidth=0)
        _write(axes, start, stop, 0.955 * top, _NAMES[number])
    if whose and spans:
        label_beside(axes, 0.955 * top, whose)


def _mark(axes: "Axes", ends: "Sequence[float]", height: float, end: float) -> None:
    """The authors' stages as a line with ticks, above the curves."""
    start = 0.0
    for number, stop in enumerate(ends):
        if start < end:
            _write(axes, start, min(stop, end), height * 1.035, _NAMES[number])
            axes.plot([start, min(stop, end)], [height] * 2, "|-", color="0.4", linewidth=0.8)
        start = stop
    label_beside(axes, height, "authors")


def _write(axes: "Axes", start: float, stop: float, height: float, text: str) -> None:
    """A word in the middle of a span, as far as it is seen."""
    start = max(start, float(axes.get_xlim()[0]))
    if start < stop:
        logarithmic = axes.get_xscale() == "log"
        middle = (start * stop) ** 0.5 if logarithmic else (start + stop) / 2
        axes.text(middle, height, text, ha="center", va="center", fontsize=7, color="0.3")


def _levels(axes: "Axes", questions: "Population") -> None:
    answers, known = questions.given_relation.shape[1], questions.relation_level
    equally = round(float(np.exp(known)))  # so many answers, if they are equally frequent
    by_relation = f"ln {equally}" if abs(known - np.log(equally)) < 1e-9 else "H(a | r)"
    for level, name in ((float(np.log(answers)), f"ln {answers}"), (known, by_relation)):
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        label_beside(axes, level, name)
