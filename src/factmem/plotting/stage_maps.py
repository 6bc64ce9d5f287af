"""Maps of the stages of training, beyond the paper: `benchmarks/dynamics.py` measures them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from factmem.plotting.drawing import STYLE, label_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Cell", "learning_order", "softmax_stages", "stage_map"]

_RELATIONS, _SUBJECTS, _NEITHER = "1b6ca8", "d1495b", "0.93"


@dataclass(frozen=True)
class Cell:
    """One size of a table, and which stage its training has.

    Args:
        subjects, relations: S and R.
        rate_ratio: λ_r / λ_s.
        stage: `relations` are known alone, or `subjects`, or there is no such stage.
        share: the part of the whole training that the stage takes.
        before: the part of the time until the rest is learned that it takes.
        marginal_first: whether noise or EOS says something before any relation does.
    """

    subjects: int
    relations: int
    rate_ratio: float
    stage: str | None
    share: float
    before: float
    marginal_first: bool = False


def stage_map(cells: Sequence[Cell], answers: int, title: str = "") -> Figure:
    """Where relations or subjects are known alone, and for how long.

    Args:
        cells: sizes may be missing; several cells of one size are averaged on the left.
        answers: D, for the line where relations and subjects are equally fast.
        title: plain text.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.6, 3.7))
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        _draw_sizes(left, cells, answers)
        _draw_ratios(right, cells)
        figure.suptitle(title, parse_math=False)
        return figure


def _draw_sizes(axes: "Axes", cells: Sequence[Cell], answers: int) -> None:
    xs, ys = (sorted({getattr(c, name) for c in cells}) for name in ("subjects", "relations"))
    for x, s in enumerate(xs):
        for y, r in enumerate(ys):
            here = [c for c in cells if (c.subjects, c.relations) == (s, r)]
            if here:
                _draw_cell(axes, x, y, here)
    fast = np.geomspace(ys[0], ys[-1], 200)
    same = fast * np.sqrt((answers - 1) / (fast - 1))
    places = np.log2(same / xs[0]), np.log2(fast / ys[0])
    axes.plot(*places, color="0.1", linestyle="--", linewidth=1)
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(-0.5, len(ys) - 0.5)
    axes.set_xticks(range(len(xs)), [str(s) for s in xs])
    axes.set_yticks(range(len(ys)), [str(r) for r in ys])
    axes.grid(False)
    axes.set_aspect("equal")
    axes.set_xlabel("subjects S")
    axes.set_ylabel("relations R")


def _draw_cell(axes: "Axes", x: int, y: int, here: Sequence[Cell]) -> None:
    share = float(np.mean([c.share for c in here]))
    stages = [c.stage for c in here]
    stage = max(set(stages), key=stages.count)
    color = {"relations": f"#{_RELATIONS}", "subjects": f"#{_SUBJECTS}", None: _NEITHER}[stage]
    strength = 0.25 + 0.75 * min(1.0, share / 0.55) if stage else 1.0
    square = Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, color=color, alpha=strength)
    axes.add_patch(square)
    text = f"{100 * share:.0f} %" if stage else "none"
    if stage == "subjects":
        text += "\nsubjects"
    ink = "white" if stage and strength > 0.6 else "0.2"
    written = axes.text(x, y, text, ha="center", va="center", fontsize=7, color=ink)
    if ink != "white":  # readable where the line passes
        written.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    if any(c.marginal_first for c in here):
        axes.plot(x + 0.38, y + 0.38, ".", color="0.15", markersize=3.5)


def _draw_ratios(axes: "Axes", cells: Sequence[Cell]) -> None:
    wide = np.geomspace(0.25, 64, 400)
    expected = 1 - np.minimum(wide, 1 / wide)
    axes.plot(wide, expected, color="0.4", linestyle="--", linewidth=1, label="small α, predicted")
    for stage, marker, color, name in (
        ("relations", "o", f"#{_RELATIONS}", "relations alone"),
        ("subjects", "s", f"#{_SUBJECTS}", "subjects alone"),
        (None, "x", "0.3", "no such stage"),
    ):
        these = [c for c in cells if c.stage == stage]
        if these:
            places = [c.rate_ratio for c in these], [c.before for c in these]
            axes.plot(*places, marker, color=color, markersize=4, label=name, clip_on=False)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1)
    axes.set_xlabel("rate of relations / rate of subjects")
    axes.set_ylabel("stage / time until the rest is learned")
    axes.legend(loc="lower right", fontsize=7)


def learning_order(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], title: str = ""
) -> Figure:
    """When each subject is learned, against how often it is asked for.

    Args:
        panels: for each table, for each law of the subjects: chances and times.
        title: plain text.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.2, 3.2))
        below = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, laws) in zip(below, panels.items(), strict=True):
            markers = ("o", "s", "^", "D")
            for (law, (chances, times)), marker in zip(laws.items(), markers, strict=False):
                axes.plot(
                    chances, times, marker, linestyle="none", label=law, markersize=3, alpha=0.8
                )
            whole = [p for chances, _ in laws.values() for p in chances]
            few = np.geomspace(min(whole), max(whole), 2)
            middle, when = next(iter(laws.values()))
            axes.plot(
                few,
                when[0] * middle[0] / few,
                color="0.4",
                linestyle="--",
                label="time ∝ 1 / chance",
            )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(name, fontsize=9, parse_math=False)
            axes.set_xlabel("chance of the subject")
        below[0].set_ylabel("flow time until it is learned")
        below[0].legend(fontsize=7)
        figure.suptitle(title, parse_math=False)
        return figure


def softmax_stages(
    panels: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]],
    levels: Mapping[str, float],
    title: str = "",
) -> Figure:
    """Losses of softmax heads, one line for each seed.

    Args:
        panels: for each dimension, times and losses of every seed.
        levels: losses to mark, by name.
        title: plain text.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.6, 2.6))
        row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, runs) in zip(row, panels.items(), strict=True):
            for level in levels.values():
                axes.axhline(level, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)))
            for times, losses in runs:
                axes.plot(times[1:], losses[1:], linewidth=1)
            axes.set_xscale("log")
            axes.set_title(name, fontsize=9, parse_math=False)
            axes.set_xlabel("flow time")
        for text, level in levels.items():
            label_beside(row[-1], level, text)
        row[0].set_ylabel("loss (nats)")
        row[0].set_ylim(bottom=0)
        figure.suptitle(title, parse_math=False)
        return figure
