"""Axes, levels, spans and notes as parts of plotly's layout."""

import math
import textwrap
from typing import Any

from factmem.plotting.plot import Axis, Chart, HeatMap, Level, Span
from factmem.plotting.plotly_values import label_text
from factmem.plotting.styles import REFERENCE_COLOR

__all__ = ["chart_layout", "panel_layout"]

_LOG_TICKS = 4
"""Approximate number of ticks on a logarithmic axis: plotly draws too many by default."""
_LETTER = 0.016
"""Width of a letter as a fraction of the panel's width."""
_MIN_SPAN = 0.05
"""Fraction of the axis below which a span is too narrow for its name, even if it is rotated."""
_SPAN_TOP = 1.1
"""Height of spans in heights of the panel: their names are above the lines."""
_BRACKET_HEIGHT = 1.14
_BESIDE_WIDTH = 12
"""Letters in a line of text beside a panel."""


def panel_layout(panel: Chart | HeatMap) -> dict[str, Any]:
    """Return the layout that charts and heat maps share."""
    return {
        "autosize": True,
        "margin": {"l": 56, "r": 20, "t": 12, "b": 48},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "showlegend": any(line.in_legend for line in panel.lines),
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "bgcolor": "rgba(0, 0, 0, 0)",
        },
        "xaxis": _axis(panel.x),
        "yaxis": _axis(panel.y),
    }


def chart_layout(chart: Chart) -> dict[str, Any]:
    """Return the layout of a chart."""
    layout = panel_layout(chart)
    levels = [level for level in chart.levels if level.y > 0 or chart.y.scale == "linear"]
    layout["shapes"] = [
        *(_span(span, index, chart) for index, span in enumerate(chart.spans)),
        *map(_level, chart.levels),
        *(_bracket(span, chart) for span in chart.brackets),
    ]
    layout["annotations"] = [
        *(_level_name(level, chart.y) for level in levels),
        *_notes(chart),
        *_row_labels(chart),
    ]
    if chart.spans:
        layout["xaxis"]["showgrid"] = False  # it would cross the names
        layout["legend"]["y"] = _SPAN_TOP + 0.01
    if chart.brackets:
        layout["legend"]["y"] = _BRACKET_HEIGHT + 0.08
    beside = [part for level in chart.levels for part in textwrap.wrap(level.name, _BESIDE_WIDTH)]
    beside += [chart.spans_label, chart.brackets_label] if chart.brackets else []
    if beside:
        layout["margin"]["r"] = 8 + 8 * max(map(len, beside))
    return layout


def _axis(axis: Axis) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "title": {"text": label_text(axis.label), "standoff": 10},
        "type": axis.scale,
        "automargin": True,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "exponentformat": "power",
        "minexponent": 4,
    }
    if axis.limits != (None, None):
        layout["range"] = [None if end is None else _position(end, axis) for end in axis.limits]
    if axis.scale == "log" and axis.ticks is None:
        layout["nticks"] = _LOG_TICKS
    if axis.ticks is not None:
        layout["tickmode"] = "array"
        layout["tickvals"] = [position for position, _ in axis.ticks]
        layout["ticktext"] = [label_text(text) for _, text in axis.ticks]
    return layout


def _position(value: float, axis: Axis) -> float:
    """Return a position for ranges and annotations, where plotly expects logarithms."""
    return math.log10(value) if axis.scale == "log" else value


def _level(level: Level) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x domain",
        "x0": 0,
        "x1": 1,
        "y0": level.y,
        "y1": level.y,
        "layer": "below",
        "line": {"color": REFERENCE_COLOR[0], "width": 1.2, "dash": "dash"},
    }


def _level_name(level: Level, axis: Axis) -> dict[str, Any]:
    """Put the name of a level to the right of the panel, where it covers no line."""
    return {
        "text": label_text(level.name, _BESIDE_WIDTH),
        "showarrow": False,
        "xref": "x domain",
        "x": 1,
        "xanchor": "left",
        "align": "left",
        "y": _position(level.y, axis),
    }


def _notes(chart: Chart) -> list[dict[str, Any]]:
    return [
        {
            "text": label_text(note.text),
            "showarrow": False,
            "x": _position(note.x, chart.x),
            "y": _position(note.y, chart.y),
            "xanchor": "right",
            "yanchor": "bottom",
            "font": {"size": 11},
        }
        for note in chart.notes
    ]


def _span(span: Span, index: int, chart: Chart) -> dict[str, Any]:
    """Return a shaded interval, every second one darker, with its name at the top.

    A name too long for its span is rotated; if the span is too narrow, the caption names it.
    """
    fraction = _fraction(span, chart)
    return {
        "type": "rect",
        "yref": "y domain",
        "y0": 0,
        "y1": _SPAN_TOP,
        "x0": span.start,
        "x1": span.end,
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": f"rgba(128, 128, 128, {0.16 if index % 2 else 0.07})",
        "label": {
            "text": label_text(span.name) if fraction > _MIN_SPAN else "",
            "textposition": "top center",
            "textangle": 0 if fraction > _LETTER * len(span.name) else -90,
        },
    }


def _bracket(span: Span, chart: Chart) -> dict[str, Any]:
    wide = _fraction(span, chart) > _LETTER * len(span.name)
    return {
        "type": "line",
        "yref": "y domain",
        "y0": _BRACKET_HEIGHT,
        "y1": _BRACKET_HEIGHT,
        "x0": span.start,
        "x1": span.end,
        "line": {"color": REFERENCE_COLOR[0], "width": 1.2},
        "label": {"text": label_text(span.name) if wide else "", "textposition": "middle"},
    }


def _row_labels(chart: Chart) -> list[dict[str, Any]]:
    if not chart.brackets:
        return []
    labels = ((chart.spans_label, _SPAN_TOP - 0.03), (chart.brackets_label, _BRACKET_HEIGHT))
    return [
        {
            "text": label_text(text),
            "showarrow": False,
            "xref": "x domain",
            "yref": "y domain",
            "x": 1,
            "y": height,
            "xanchor": "left",
            "yanchor": "middle",
        }
        for text, height in labels
    ]


def _fraction(span: Span, chart: Chart) -> float:
    """Return the fraction of the x axis that a span takes."""
    positions = [x for line in chart.lines for x in line.x]
    positions += [x for other in chart.spans for x in (other.start, other.end)]
    start, end = span.start, span.end
    if chart.x.scale == "log":
        start, end, *positions = (math.log(max(x, 1e-300)) for x in (start, end, *positions))
    width = max(positions) - min(positions)
    return (end - start) / width if width > 0 else 1.0
