"""One figure of the page: its panels and their controls, its text and its numbers."""

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from factmem.plotting.plot import Chart, HeatMap
from factmem.plotting.plotly_backend import plotly_panels
from factmem.plotting.styles import legend_names, trace_styles
from factmem.report.content import Section

__all__ = ["figure_context", "figure_data"]

_MAX_ROWS = 500
"""Rows of a table on the page; the CSV file has all of them."""
_WIDE, _NARROW = 1000, 300
"""Width of a row of panels in pixels, on wide and on narrow screens."""


def figure_data(section: Section) -> dict[str, Any]:
    """Return the JSON data from which the script draws a figure."""
    names = legend_names(section.plot)
    panels = []
    for panel in plotly_panels(section.plot):
        lines = [None if name is None else names.index(name) for name in panel.lines]
        panels.append({**asdict(panel), "lines": lines})
    return {"anchor": section.anchor, "panels": panels}


def figure_context(section: Section) -> dict[str, Any]:
    """Return the variables of the template `figure.html`."""
    plot = section.plot
    styles = trace_styles(plot)
    return {
        "section": section,
        # Buttons for lines, because the legend of plotly cannot be used from the keyboard.
        "lines": [(name, styles[name].css_variable) for name in legend_names(plot)],
        "columns": _columns(section),
        "panels": [_panel(section, index) for index in range(len(plot.panels))],
        "csv_address": "data:text/csv;charset=utf-8," + quote(plot.data.csv, safe=""),
        "rows": [[_cell(value) for value in row] for row in plot.data.rows[:_MAX_ROWS]],
        "omitted_rows": max(0, len(plot.data.rows) - _MAX_ROWS),
    }


def _panel(section: Section, index: int) -> dict[str, Any]:
    panel = section.plot.panels[index]
    # Maps cannot switch scales, because the edges of their cells belong to one scale.
    axes = (("x", panel.x), ("y", panel.y)) if isinstance(panel, Chart) else ()
    return {
        "index": index,
        "title": panel.title,
        "name": panel.title or f"panel {index + 1}",
        "description": _describe(section, panel),
        "scales": [(letter, axis.scale) for letter, axis in axes],
        "legend_rows": _legend_rows(panel, _WIDE // _columns(section)),
        "narrow_legend_rows": _legend_rows(panel, _NARROW),
    }


def _columns(section: Section) -> int:
    return max(1, min(section.plot.columns, len(section.plot.panels)))


def _legend_rows(panel: Chart | HeatMap, width: int) -> int:
    """Estimate the rows of plotly's legend, by which the panel must be higher."""
    rows, free = 0, 0
    for name in dict.fromkeys(line.name for line in panel.lines if line.in_legend):
        needed = 50 + 7 * len(name)
        if needed > free:
            rows, free = rows + 1, width
        free -= needed
    return rows


def _describe(section: Section, panel: Chart | HeatMap) -> str:
    """Describe a panel for screen readers."""
    title = f"{section.heading}. {panel.title}" if panel.title else section.heading
    if isinstance(panel, HeatMap):
        content = f"A map of {panel.value_label} over {panel.x.label} and {panel.y.label}"
    else:
        content = f"A chart of {panel.y.label} against {panel.x.label}"
    names = ", ".join(dict.fromkeys(line.name for line in panel.lines if line.in_legend))
    lines = f", with lines for {names}" if names else ""
    return f"{title}. {content}{lines}. The numbers are in the table below."


def _cell(value: str | int | float | None) -> tuple[str, bool]:
    """Return the text of a cell, and whether it is a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (f"{value:.6g}" if isinstance(value, float) else str(value)), True
    return ("" if value is None else str(value)), False
