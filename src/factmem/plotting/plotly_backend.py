"""Draws a `Plot` by plotly for web pages."""

from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from factmem.plotting.plot import Chart, HeatMap, Plot
from factmem.plotting.plotly_layout import chart_layout, panel_layout
from factmem.plotting.plotly_lines import traces
from factmem.plotting.plotly_maps import cells_trace, line_edge, with_linear_axes
from factmem.plotting.plotly_values import to_json
from factmem.plotting.styles import TraceStyle, trace_styles

__all__ = ["PlotlyPanel", "draw_plotly", "plotly_panels"]


def draw_plotly(plot: Plot) -> list[dict[str, Any]]:
    """Draw each panel of a plot as a plotly figure.

    Panels are separate figures so that a page can put them side by side or below each other.

    Returns:
        `data` and `layout` of each panel as JSON data, in the colors of the light theme.
    """
    return [{"data": panel.data, "layout": panel.layout} for panel in plotly_panels(plot)]


@dataclass(frozen=True)
class PlotlyPanel:
    """A panel as a plotly figure, with what a page needs to recolor and to hide lines.

    Args:
        data, layout: the plotly figure as JSON data.
        lines: the line in the legend that each trace belongs to; None if there is none.
        colors: the CSS variable of each trace's color; None for cells.
    """

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    lines: list[str | None]
    colors: list[str | None]


def plotly_panels(plot: Plot) -> list[PlotlyPanel]:
    """Draw the panels of a plot."""
    styles = trace_styles(plot)
    return [
        _chart(panel, styles) if isinstance(panel, Chart) else _heat_map(panel, styles)
        for panel in plot.panels
    ]


def _chart(chart: Chart, styles: dict[str, TraceStyle]) -> PlotlyPanel:
    return PlotlyPanel(
        traces(chart, styles),
        to_json(go.Layout(chart_layout(chart))),
        [line.name if line.in_legend else None for line in chart.lines],
        [styles[line.name].css_variable for line in chart.lines],
    )


def _heat_map(heat_map: HeatMap, styles: dict[str, TraceStyle]) -> PlotlyPanel:
    heat_map = with_linear_axes(heat_map)
    layout = panel_layout(heat_map)
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"showgrid": False, "showline": False}
    data: list[dict[str, Any]] = [cells_trace(heat_map)]
    names: list[str | None] = [None]
    colors: list[str | None] = [None]
    for line, trace in zip(heat_map.lines, traces(heat_map, styles), strict=True):
        name = line.name if line.in_legend else None
        if not line.has_markers:
            data.append(line_edge(trace))
            names.append(name)
            colors.append("paper")
        data.append(trace)
        names.append(name)
        colors.append(styles[line.name].css_variable)
    return PlotlyPanel(data, to_json(go.Layout(layout)), names, colors)
