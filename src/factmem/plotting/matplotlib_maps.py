"""Draws a `HeatMap` by matplotlib."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from factmem.plotting.plot import Axis, HeatMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

__all__ = ["category_patches", "draw_heat_map"]

_CATEGORY_COLORS = ("#bcd8ee", "#f6c6bb", "#ececec", "#d9d2e9", "#c9e4c5", "#fdf0b5")


def draw_heat_map(figure: Figure, axes: "Axes", heat_map: HeatMap) -> None:
    """Draw cells, texts and lines into the axes, and a color bar unless there are categories."""
    values = np.array(
        [[np.nan if value is None else value for value in row] for row in heat_map.values], float
    )
    count = len(heat_map.categories)
    colors = ListedColormap(_CATEGORY_COLORS[:count]) if count else _color_map(heat_map)
    low, high = (-0.5, count - 0.5) if count else (heat_map.low, heat_map.high)
    mesh = axes.pcolormesh(
        heat_map.x_edges, heat_map.y_edges, values, cmap=colors, vmin=low, vmax=high,
        edgecolors="white", linewidth=0.6 if heat_map.texts is not None else 0.2,
    )  # fmt: skip
    axes.grid(False)
    axes.set_xscale(heat_map.x.scale)
    axes.set_yscale(heat_map.y.scale)
    axes.set_xlim(min(heat_map.x_edges), max(heat_map.x_edges))
    axes.set_ylim(min(heat_map.y_edges), max(heat_map.y_edges))
    if heat_map.texts is not None:
        _write_texts(axes, heat_map, values, mesh)
    _draw_lines(axes, heat_map)
    if _crowded(axes, heat_map):
        axes.tick_params(axis="x", labelrotation=60)
    if not count:
        bar = figure.colorbar(mesh, ax=axes, pad=0.02)
        bar.set_label(heat_map.value_label, parse_math=False)
        if heat_map.value_ticks is not None:
            positions, names = zip(*heat_map.value_ticks, strict=True)
            bar.set_ticks(positions, labels=names, parse_math=False, fontsize=7.5)


def category_patches(heat_map: HeatMap) -> list[Patch]:
    """Return a patch of color for each category, for the legend."""
    colors = _CATEGORY_COLORS[: len(heat_map.categories)]
    return [Patch(color=color) for color in colors]


def _draw_lines(axes: "Axes", heat_map: HeatMap) -> None:
    # Diverging maps have red cells already.
    color = "0.1" if heat_map.diverging else "#d62728"
    for line in heat_map.lines:
        label = line.name if line.in_legend else None
        if line.has_markers:
            axes.plot(line.x, line.y, ".", color="0.15", markersize=3.5, label=label)
            continue
        dashed = heat_map.diverging and line.kind == "reference"
        axes.plot(
            line.x, line.y, color=color, linewidth=1.2 if dashed else 1.6, label=label,
            linestyle="--" if dashed else "-",
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip


def _crowded(axes: "Axes", heat_map: HeatMap) -> bool:
    """Whether tick labels of the x axis would overlap: a letter takes about 0.08 inches."""
    ticks = heat_map.x.ticks or ()
    width = axes.get_position().width * axes.get_figure().get_figwidth()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    return bool(0.08 * sum(len(name) + 1 for _, name in ticks) > width)


def _color_map(heat_map: HeatMap) -> str:
    return "RdBu_r" if heat_map.diverging else "viridis"


def _write_texts(axes: "Axes", heat_map: HeatMap, values: np.ndarray, mesh: "QuadMesh") -> None:
    assert heat_map.texts is not None
    x_centers = _centers(heat_map.x_edges, heat_map.x)
    y_centers = _centers(heat_map.y_edges, heat_map.y)
    low, high = mesh.get_clim()
    for row, texts in enumerate(heat_map.texts):
        for column, text in enumerate(texts):
            fraction = (values[row, column] - low) / (high - low or 1.0)
            dark = abs(fraction - 0.5) > 0.35 if heat_map.diverging else fraction < 0.55
            # A line over the map passes behind the text.
            box = {"facecolor": mesh.cmap(fraction), "edgecolor": "none", "pad": 1.2}
            axes.text(
                x_centers[column],
                y_centers[row],
                text,
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if dark and not heat_map.categories else "0.1",
                parse_math=False,
                bbox=box if text and heat_map.lines else None,
            )


def _centers(edges: tuple[float, ...], axis: Axis) -> list[float]:
    """Return the centers of cells, as the eye sees them on the axis."""
    ends = np.array(edges)
    middle = np.sqrt(ends[:-1] * ends[1:]) if axis.scale == "log" else (ends[:-1] + ends[1:]) / 2
    return middle.tolist()
