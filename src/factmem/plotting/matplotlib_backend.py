"""Drawing a `Plot` for paper, by matplotlib: readable at column width and in grayscale."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from factmem.plotting.drawing import STYLE
from factmem.plotting.plot import Axis, Chart, HeatMap, Line, Plot, Span, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

__all__ = ["printed"]

_COLORS = ("#1b6ca8", "#d1495b", "#2e933c", "#7a5195", "#8a6d3b", "#444444")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
_DASHES = ("-", "--", "-.", ":")
_SHADES = ("0.95", "0.87")
_KINDS = ("#bcd8ee", "#f6c6bb", "#ececec", "#d9d2e9", "#c9e4c5", "#fdf0b5")
_CHART, _MAP = (4.4, 3.3), (3.7, 3.0)
"""Inches of one panel: text of 9 points is still 7 when it is shrunk to a column."""
_LETTER = 0.012
"""The part of an axis that a letter of the name of a span takes."""
_LEAST = 0.05
"""The part of an axis below which a span has no room for its name, even upright."""
_FEW_DECADES = 1.7
"""Logarithmic axes shorter than this get ticks at 2 and 5 as well."""


def printed(plot: Plot) -> Figure:
    """A figure as matplotlib draws it."""
    with mpl.rc_context(fname=STYLE):
        columns = min(plot.columns, len(plot.panels))
        rows = -(-len(plot.panels) // columns)
        size = _size(plot.panels[0])
        figure = Figure(figsize=(columns * size[0], rows * size[1]))
        axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
        for place, panel in zip(axes, plot.panels, strict=False):
            if isinstance(panel, Chart):
                _draw_chart(place, panel)
            else:
                _draw_map(figure, place, panel)
            place.set_title(panel.title, fontsize=9, parse_math=False)
        for place in axes[len(plot.panels) :]:
            place.set_axis_off()
        figure.suptitle(plot.title, fontsize=10, parse_math=False)
        return figure


def _size(panel: Chart | HeatMap) -> tuple[float, float]:
    """A little more for what is long: the names of lines, many cells with text."""
    if isinstance(panel, Chart):
        return _CHART[0], _CHART[1] + 0.16 * len(panel.lines)
    cells = len(panel.x_edges) - 1
    width = max(_MAP[0], 0.42 * cells + 1.2) if panel.texts is not None else _MAP[0]
    return width, max(_MAP[1], 0.24 * len(panel.y_edges) + 1.0)


# ---- lines ---------------------------------------------------------------------------------------


def _draw_chart(axes: "Axes", chart: Chart) -> None:
    _draw_lines(axes, chart.lines)
    _set_axis(axes, "x", chart.x)
    _set_axis(axes, "y", chart.y)
    _fit_limits(axes, chart)
    for number, span in enumerate(chart.spans):
        axes.axvspan(span.start, span.end, color=_SHADES[number % 2], zorder=0, linewidth=0)
        _name_span(axes, span)
    for level in chart.levels:
        axes.axhline(level.y, color="0.5", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            level.name, (1.01, level.y), xycoords=("axes fraction", "data"), va="center",
            fontsize=7.5, color="0.3", parse_math=False,
        )  # fmt: skip
    if len(chart.lines) > 1:
        _legend_below(axes, len(chart.lines))


def _name_span(axes: "Axes", span: Span) -> None:
    """Above it; or upright within it, where it is too narrow for its name."""
    left, right = axes.get_xlim()
    share = (span.end - span.start) / (right - left)
    if share < _LEAST:
        return  # the caption has it
    wide = share > _LETTER * len(span.name)
    axes.text(
        (span.start + span.end) / 2,
        1.01 if wide else 0.94,
        span.name,
        transform=axes.get_xaxis_transform(),
        rotation=0 if wide else 90,
        ha="center",
        va="bottom" if wide else "top",
        fontsize=7,
        color="0.3",
        parse_math=False,
    )


def _legend_below(axes: "Axes", lines: int) -> None:
    """Beside the lines there is no room that is sure to be empty."""
    legend = axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.18), fontsize=7.5, ncols=2 if lines > 3 else 1
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_lines(axes: "Axes", lines: Sequence[Line]) -> None:
    each, look = looks(lines), (0, 0)
    for line in lines:
        look = each.get(line.name, look)  # a fit has the color of the line before it
        style = _style(line, *look)
        if line.low is not None and line.high is not None:
            y = np.array(line.y)
            errors = np.maximum(np.array([y - np.array(line.low), np.array(line.high) - y]), 0)
            axes.errorbar(line.x, line.y, errors, capsize=2.5, elinewidth=0.9, **style)
        else:
            axes.plot(line.x, line.y, **style)


def _style(line: Line, color: int, marker: int) -> dict[str, Any]:
    shade = _COLORS[color % len(_COLORS)]
    if line.kind == "reference":
        dashes = {"color": "0.35", "linestyle": (0, (5, 3)), "linewidth": 1.1}
        return {"label": line.name, **dashes}
    if line.kind == "fit":
        return {"label": line.name, "color": shade, "linewidth": 0.8, "linestyle": ":"}
    dashes = _DASHES[color % len(_DASHES)]
    if line.kind == "curve":
        return {"label": line.name, "color": shade, "linestyle": dashes}
    return {
        "label": line.name,
        "color": shade,
        "linestyle": dashes if line.group else "-",
        "linewidth": 0.8,
        "marker": _MARKERS[marker % len(_MARKERS)],
        "markersize": 4.5,
        # Every second color hollow: told apart without colors too.
        "markerfacecolor": "white" if color % 2 else shade,
    }


def _fit_limits(axes: "Axes", chart: Chart) -> None:
    """What was measured decides what is in sight; a reference may leave the picture."""
    seen = [line for line in chart.lines if line.kind != "reference"] or list(chart.lines)
    lows = [line.low or line.y for line in seen]
    highs = [line.high or line.y for line in seen]
    x = [value for line in seen for value in line.x]
    y = [value for values in (*lows, *highs) for value in values]
    y += [level.y for level in chart.levels]
    axes.set_xlim(*_limits(x, chart.x.scale))
    axes.set_ylim(*_limits(y, chart.y.scale))


def _limits(values: Sequence[float], scale: str) -> tuple[float, float]:
    values = [value for value in values if np.isfinite(value) and (scale != "log" or value > 0)]
    low, high = min(values, default=0.1), max(values, default=1.0)
    if scale == "log":
        more = max((high / low) ** 0.08, 1.1)
        return low / more, high * more
    more = 0.04 * (high - low or 1.0)
    return (0.0 if 0 <= low <= more else low - more), high + more


def _set_axis(axes: "Axes", which: str, axis: Axis) -> None:
    getattr(axes, f"set_{which}label")(axis.label, parse_math=False)
    getattr(axes, f"set_{which}scale")(axis.scale)
    drawn = getattr(axes, f"{which}axis")
    if axis.ticks is not None:
        drawn.set_major_locator(FixedLocator([place for place, _ in axis.ticks]))
        names = [name for _, name in axis.ticks]
        drawn.set_major_formatter(FuncFormatter(lambda _, place: _named(names, place)))
        drawn.set_minor_locator(NullLocator())
        for label in drawn.get_ticklabels():
            label.set_parse_math(False)
    elif axis.scale == "log":
        drawn.set_major_formatter(FuncFormatter(_plain))
        drawn.set_minor_formatter(FuncFormatter(lambda value, _: _between(drawn, value)))
        drawn.set_tick_params(which="both", labelsize=8)


def _named(names: Sequence[str], place: int | None) -> str:
    return names[place] if place is not None and place < len(names) else ""


def _plain(value: float, _: Any = None) -> str:
    """1,000 and not 10³, which readers of facts expect."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _between(drawn: Any, value: float) -> str:
    """Ticks within a decade are named where the axis is short."""
    low, high = drawn.get_view_interval()
    first = round(value / 10 ** np.floor(np.log10(value)))
    short = np.log10(high / low) < _FEW_DECADES
    return _plain(value) if short and first in (2, 5) else ""


# ---- maps ----------------------------------------------------------------------------------------


def _draw_map(figure: Figure, axes: "Axes", cells: HeatMap) -> None:
    values = np.array([[np.nan if v is None else v for v in row] for row in cells.values], float)
    names = len(cells.kinds)
    colors = ListedColormap(_KINDS[:names]) if names else _colors(cells)
    low, high = (-0.5, names - 0.5) if names else (cells.low, cells.high)
    mesh = axes.pcolormesh(
        cells.x_edges, cells.y_edges, values, cmap=colors, vmin=low, vmax=high,
        edgecolors="white", linewidth=0.6 if cells.texts is not None else 0.2,
    )  # fmt: skip
    axes.grid(False)
    axes.set_xlim(min(cells.x_edges), max(cells.x_edges))
    axes.set_ylim(min(cells.y_edges), max(cells.y_edges))
    if cells.texts is not None:
        _write(axes, cells, values, mesh)
    for line in cells.lines:
        axes.plot(line.x, line.y, color="#d62728", linewidth=1.6, label=line.name,
                  path_effects=[withStroke(linewidth=3, foreground="white")])  # fmt: skip
    _set_axis(axes, "x", cells.x)
    _set_axis(axes, "y", cells.y)
    if _crowded(axes, cells):
        axes.tick_params(axis="x", labelrotation=60)
    if names:
        patches = [Patch(color=_KINDS[place], label=name) for place, name in enumerate(cells.kinds)]
        legend = axes.legend(
            handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=names,
            fontsize=7.5,
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)
        return
    figure.colorbar(mesh, ax=axes, pad=0.02).set_label(cells.unit, parse_math=False)
    if cells.lines:
        _legend_below(axes, len(cells.lines))


def _crowded(axes: "Axes", cells: HeatMap) -> bool:
    """Whether names below would run into each other: a letter takes about 0.08 inches."""
    names = cells.x.ticks or ()
    width = axes.get_position().width * axes.get_figure().get_figwidth()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    return bool(0.08 * sum(len(name) + 1 for _, name in names) > width)


def _colors(cells: HeatMap) -> str:
    """Values on both sides of zero have two colors, the others one order from dark to light."""
    return "RdBu_r" if cells.low < 0 < cells.high else "viridis"


def _write(axes: "Axes", cells: HeatMap, values: np.ndarray, mesh: "QuadMesh") -> None:
    assert cells.texts is not None
    low, high = mesh.get_clim()
    for y, row in enumerate(cells.texts):
        for x, text in enumerate(row):
            share = (values[y, x] - low) / (high - low or 1.0)
            # A line over the map goes round what is written.
            behind = {"facecolor": mesh.cmap(share), "edgecolor": "none", "pad": 1.2}
            dark = not cells.kinds and (share < 0.55 if cells.low >= 0 else abs(share - 0.5) > 0.35)
            axes.text(
                (cells.x_edges[x] + cells.x_edges[x + 1]) / 2,
                (cells.y_edges[y] + cells.y_edges[y + 1]) / 2,
                text,
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if dark else "0.1",
                parse_math=False,
                bbox=behind if text and cells.lines else None,
            )
