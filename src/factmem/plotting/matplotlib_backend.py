"""Draws a `Plot` by matplotlib for papers: readable at column width and in grayscale."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from factmem.plotting.matplotlib_maps import category_patches, draw_heat_map
from factmem.plotting.plot import Axis, Chart, HeatMap, Line, Plot, Span
from factmem.plotting.styles import LineStyle, line_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

__all__ = ["draw_matplotlib"]

_STYLE = Path(__file__).with_name("factmem.mplstyle")
_COLORS = ("#1b6ca8", "#d1495b", "#2e933c", "#7a5195", "#8a6d3b", "#444444")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*", "h", "d")
_DASHES = ("-", "--", "-.", ":")
_REFERENCE_DASHES = ((0, (5, 3)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_SHADES = ("0.95", "0.87")
_PAGE_WIDTH = 8.8
"""Inches that a row of charts may take: text of 9 points is then readable on a page."""
_CHART_SIZE, _LOW_CHART = (4.4, 3.3), 2.7
"""Width and height of a chart in inches, and its height among narrow or stacked charts."""
_MAP_SIZE = (3.7, 3.0)
_LEGEND_LINE, _LEGEND_GAP, _LEGEND_MARGIN = 0.16, 0.42, 0.6
"""Height of a row of the legend, its distance from the axes above, and how much wider than the
panel its entries may be, in inches."""
_TITLE_LETTER = 0.075
"""Width of a letter of the title, in inches."""
_LETTER = 0.012
"""Width of a letter of a span's name, as a fraction of the axis."""
_MIN_SPAN = 0.05
"""Fraction of the axis below which a span is too narrow for its name, even if it is rotated."""
_BRACKET_HEIGHT = 1.085
"""Height of brackets, in heights of the axes: above the names of spans."""
_LABELED_DIGITS = ((0.5, None), (0.7, (2, 3, 5, 7)), (1.7, (2, 5)))
"""Minor ticks of logarithmic axes that are labeled on axes of fewer decades; None for all."""


def draw_matplotlib(plot: Plot) -> Figure:
    """Draw a plot by matplotlib, without changing matplotlib's global state."""
    with mpl.rc_context(fname=_STYLE):
        columns = max(1, min(plot.columns, len(plot.panels)))
        rows = -(-len(plot.panels) // columns)
        figure = Figure(figsize=_figure_size(plot, rows, columns))
        grid = np.ravel(figure.subplots(rows, columns, squeeze=False))
        for axes, panel in zip(grid, plot.panels, strict=False):
            if isinstance(panel, Chart):
                _draw_chart(axes, panel)
            else:
                draw_heat_map(figure, axes, panel)
            _set_axis(axes, "x", panel.x)
            _set_axis(axes, "y", panel.y)
            if isinstance(panel, Chart):
                _fit_limits(axes, panel)
                _annotate(axes, panel)
            if not plot.shared_legend:
                _add_legend(axes, panel, figure.get_figwidth() / columns)
            axes.set_title(panel.title, fontsize=9, parse_math=False, pad=_title_pad(panel))
        for axes in grid[len(plot.panels) :]:
            axes.set_axis_off()
        if plot.shared_legend:
            _add_shared_legend(figure, grid.tolist(), plot)
        title = fill(plot.title, int(figure.get_figwidth() / _TITLE_LETTER))
        figure.suptitle(title, fontsize=10, parse_math=False)
        return figure


def _figure_size(plot: Plot, rows: int, columns: int) -> tuple[float, float]:
    """Return width and height in inches, from the size of the largest panel."""
    sizes = [_panel_size(panel, plot, rows, columns) for panel in plot.panels]
    width, height = (max(lengths) for lengths in zip(*sizes, strict=True))
    return columns * width, rows * height + 2 * _LEGEND_LINE * plot.shared_legend


def _panel_size(panel: Chart | HeatMap, plot: Plot, rows: int, columns: int) -> tuple[float, float]:
    if isinstance(panel, HeatMap):
        cells = len(panel.x_edges) - 1 if panel.texts is not None else 0
        width = max(_MAP_SIZE[0], 0.42 * cells + 1.2)
        return width, max(_MAP_SIZE[1], 0.24 * len(panel.y_edges) + 1.0)
    width = min(_CHART_SIZE[0], _PAGE_WIDTH / columns)
    height = _LOW_CHART if columns > 2 or rows > 1 else _CHART_SIZE[1]
    names = [line.name for line in panel.lines if line.in_legend and not plot.shared_legend]
    legend_rows = -(-len(names) // _legend_columns(names, width))
    return width, height + _LEGEND_LINE * legend_rows


def _title_pad(panel: Chart | HeatMap) -> float:
    """Return the distance of a panel's title in points: above the names of spans and brackets."""
    if isinstance(panel, HeatMap):
        return 6.0
    return 6.0 + 10 * bool(panel.spans) + 22 * bool(panel.brackets)


# ---- lines ---------------------------------------------------------------------------------------


def _draw_chart(axes: "Axes", chart: Chart) -> None:
    styles, style = line_styles(chart.lines), LineStyle(0, 0)
    references = [line.group or line.name for line in chart.lines if line.kind == "reference"]
    dashes = dict(zip(dict.fromkeys(references), 9 * _REFERENCE_DASHES, strict=False))
    for line in chart.lines:
        style = styles.get(line.name, style)  # a fit has the color of the line before it
        options = _line_options(line, style, dashes)
        if line.low is None and line.x_low is None:
            axes.plot(line.x, line.y, **options)
        else:
            errors = _errors(line.x, line.x_low, line.x_high), _errors(line.y, line.low, line.high)
            axes.errorbar(
                line.x, line.y, xerr=errors[0], yerr=errors[1], capsize=2.5, elinewidth=0.9,
                **options,
            )  # fmt: skip


def _line_options(line: Line, style: LineStyle, dashes: Mapping[str, Any]) -> dict[str, Any]:
    label = {"label": line.name if line.in_legend else None}
    if line.kind == "reference":
        dash = dashes[line.group or line.name]
        return label | {"color": "0.35", "linestyle": dash, "linewidth": 1.1}
    color = _COLORS[style.color % len(_COLORS)]
    if line.kind == "fit":
        return label | {"color": color, "linewidth": 1.0, "linestyle": ":"}
    dash = _DASHES[style.color % len(_DASHES)]
    if line.kind == "curve":
        return label | {"color": color, "linestyle": dash}
    joined = dash if line.group else "-"
    # Every second color is hollow, to differ in grayscale too; a color used again is the opposite.
    hollow = (style.color + style.color // len(_COLORS)) % 2
    return label | {
        "color": color,
        "linestyle": joined if line.kind == "measured" else "none",
        "linewidth": 0.8,
        "marker": _MARKERS[style.marker % len(_MARKERS)],
        "markersize": 4.5,
        "markerfacecolor": "white" if hollow else color,
    }


def _errors(
    values: Sequence[float], low: Sequence[float] | None, high: Sequence[float] | None
) -> np.ndarray | None:
    if low is None or high is None:
        return None
    middle = np.array(values)
    return np.maximum([middle - np.array(low), np.array(high) - middle], 0)


# ---- levels, spans, brackets, notes --------------------------------------------------------------


def _annotate(axes: "Axes", chart: Chart) -> None:
    for number, span in enumerate(chart.spans):
        start = max(span.start, axes.get_xlim()[0]) if chart.x.scale == "log" else span.start
        axes.axvspan(start, span.end, color=_SHADES[number % 2], zorder=0, linewidth=0)
        _name_span(axes, span)
    if chart.brackets:
        _draw_brackets(axes, chart)
    for level in chart.levels:
        axes.axhline(level.y, color="0.5", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            level.name, (1.01, level.y), xycoords=("axes fraction", "data"), va="center",
            fontsize=7.5, color="0.3", parse_math=False,
        )  # fmt: skip
    for note in chart.notes:
        axes.annotate(
            note.text, (note.x, note.y), xytext=(-5, 0), textcoords="offset points", ha="right",
            va="bottom", fontsize=7.5, color="0.3", parse_math=False,
        )  # fmt: skip


def _name_span(axes: "Axes", span: Span) -> None:
    """Write the name above the span, or rotated inside it if the span is too narrow."""
    start, end = _fractions(axes, span)
    if end - start < _MIN_SPAN:
        return  # the caption names it
    wide = end - start > _LETTER * len(span.name)
    height, rotation, align = (1.01, 0, "bottom") if wide else (0.94, 90, "top")
    _write(axes, (start + end) / 2, height, span.name, rotation=rotation, va=align)


def _draw_brackets(axes: "Axes", chart: Chart) -> None:
    for span in chart.brackets:
        start, end = _fractions(axes, span)
        if start >= end:
            continue
        axes.plot(
            [start, end], [_BRACKET_HEIGHT] * 2, "|-", color="0.4", linewidth=0.8,
            transform=axes.transAxes, clip_on=False,
        )  # fmt: skip
        if end - start > _LETTER * len(span.name):
            _write(axes, (start + end) / 2, _BRACKET_HEIGHT + 0.015, span.name, va="bottom")
    if chart.spans:
        _write(axes, 1.01, 1.01, chart.spans_label, ha="left", va="bottom")
    _write(axes, 1.01, _BRACKET_HEIGHT, chart.brackets_label, ha="left", va="center")


def _write(axes: "Axes", x: float, y: float, text: str, **options: Any) -> None:
    """Write a small text at a point given in fractions of the axes."""
    options = {"ha": "center", "fontsize": 7, "color": "0.3"} | options
    axes.text(x, y, text, transform=axes.transAxes, parse_math=False, **options)


def _fractions(axes: "Axes", span: Span) -> tuple[float, float]:
    """Return the visible part of a span in fractions of the x axis."""
    low, high = axes.get_xlim()
    ends = np.clip([span.start, span.end], low, high)
    if axes.get_xscale() == "log":
        low, high, ends = np.log(low), np.log(high), np.log(ends)
    start, end = (ends - low) / (high - low)
    return float(start), float(end)


# ---- axes ----------------------------------------------------------------------------------------


def _fit_limits(axes: "Axes", chart: Chart) -> None:
    """Fit the limits to measured lines and levels; references may leave the picture."""
    lines = [line for line in chart.lines if line.kind != "reference"] or list(chart.lines)
    x = [v for line in lines for part in (line.x, line.x_low, line.x_high) for v in part or ()]
    y = [v for line in lines for part in (line.y, line.low, line.high) for v in part or ()]
    y += [level.y for level in chart.levels]
    axes.set_xlim(*_limits(x, chart.x))
    axes.set_ylim(*_limits(y, chart.y))


def _limits(values: Iterable[float], axis: Axis) -> tuple[float, float]:
    log = axis.scale == "log"
    values = [value for value in values if np.isfinite(value) and (value > 0 or not log)]
    low, high = min(values, default=0.1), max(values, default=1.0)
    if log:
        factor = max((high / low) ** 0.08, 1.1)
        fitted = low / factor, high * factor
    else:
        margin = 0.04 * (high - low or 1.0)
        fitted = (0.0 if 0 <= low <= margin else low - margin), high + margin
    start, end = axis.limits
    return fitted[0] if start is None else start, fitted[1] if end is None else end


def _set_axis(axes: "Axes", which: str, axis: Axis) -> None:
    getattr(axes, f"set_{which}label")(axis.label, parse_math=False)
    getattr(axes, f"set_{which}scale")(axis.scale)
    target = getattr(axes, f"{which}axis")
    if axis.ticks is not None:
        target.set_major_locator(FixedLocator([position for position, _ in axis.ticks]))
        names = [name for _, name in axis.ticks]
        target.set_major_formatter(FuncFormatter(lambda _, index: _tick_name(names, index)))
        target.set_minor_locator(NullLocator())
        for label in target.get_ticklabels():
            label.set_parse_math(False)
    elif axis.scale == "log":
        target.set_major_formatter(FuncFormatter(_plain_number))
        target.set_minor_formatter(FuncFormatter(lambda value, _: _minor_label(target, value)))
        target.set_tick_params(which="both", labelsize=8)


def _tick_name(names: Sequence[str], index: int | None) -> str:
    return names[index] if index is not None and index < len(names) else ""


def _plain_number(value: float, _: Any = None) -> str:
    """Return 1,000 rather than 10³, and 2.2 rather than 2."""
    whole = value >= 1 and np.isclose(value, round(value), rtol=1e-9)
    return f"{value:,.0f}" if whole else f"{value:g}"


def _minor_label(axis: Any, value: float) -> str:
    """Label ticks within a decade if the axis is so short that it has too few others."""
    low, high = axis.get_view_interval()
    digits = value / 10 ** np.floor(np.log10(value) + 1e-9)
    for decades, labeled in _LABELED_DIGITS:
        if np.log10(high / low) < decades:
            chosen = labeled is None or bool(np.isclose(digits, labeled).any())
            return _plain_number(value) if chosen else ""
    return ""


# ---- legends -------------------------------------------------------------------------------------


def _add_legend(axes: "Axes", panel: Chart | HeatMap, width: float) -> None:
    """Put the legend below the panel: no place inside is sure to be empty."""
    handles = _handles(axes, panel)
    if len(handles) < (2 if isinstance(panel, Chart) else 1):
        return
    categories = len(panel.categories) if isinstance(panel, HeatMap) else 0
    columns = categories or _legend_columns(list(handles), width)
    below = axes.transAxes + ScaledTranslation(0, -_LEGEND_GAP, axes.figure.dpi_scale_trans)
    legend = axes.legend(
        list(handles.values()), list(handles), loc="upper center", bbox_to_anchor=(0.5, 0),
        bbox_transform=below, fontsize=7.5, ncols=columns,
    )  # fmt: skip
    _use_plain_text(legend)


def _legend_columns(names: Sequence[str], width: float) -> int:
    """Return 2 for more than three names if they fit beside each other, else 1."""
    if len(names) <= 3:
        return 1
    return max(1, min(2, int((width + _LEGEND_MARGIN) / _entry_width(names))))


def _entry_width(names: Iterable[str]) -> float:
    """Estimate the width of a legend's entries in inches."""
    return 0.5 + 0.065 * max(map(len, names))


def _add_shared_legend(figure: Figure, grid: Sequence["Axes"], plot: Plot) -> None:
    handles: dict[str, Any] = {}
    for axes, panel in zip(grid, plot.panels, strict=False):
        handles = _handles(axes, panel) | handles
    if len(handles) < 2:
        return
    columns = max(1, min(len(handles), int(figure.get_figwidth() / _entry_width(handles))))
    columns = -(-len(handles) // -(-len(handles) // columns))  # rows of equal length
    legend = figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=columns,
        fontsize=7.5,
    )  # fmt: skip
    _use_plain_text(legend)


def _handles(axes: "Axes", panel: Chart | HeatMap) -> dict[str, Any]:
    """Return what stands for each line in the legend, in the order of the lines, by name."""
    handles, labels = axes.get_legend_handles_labels()
    # Of lines with error bars the legend shows the marker only.
    artists = [handle[0] if isinstance(handle, tuple) else handle for handle in handles]
    by_name = dict(zip(reversed(labels), reversed(artists), strict=True))
    ordered = {line.name: by_name[line.name] for line in panel.lines if line.name in by_name}
    if isinstance(panel, HeatMap):
        return dict(zip(panel.categories, category_patches(panel), strict=True)) | ordered
    return ordered


def _use_plain_text(legend: "Legend") -> None:
    for text in legend.get_texts():
        text.set_parse_math(False)
