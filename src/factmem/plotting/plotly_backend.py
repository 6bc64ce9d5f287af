"""Figures for plotly.

Plotly draws tags, links and entities that stand in any label, and fills `%{…}` in templates: every
text is escaped here, and no name ever becomes part of a template.
"""

import html
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from factmem.plotting.plot import Axis, Chart, HeatMap, Level, Line, Plot
from factmem.report.marks import COLORS, KIND_COLORS, REFERENCE_COLOR, Mark, marks_of

__all__ = ["Drawn", "drawn_panels", "interactive"]

_LOG_TICKS = 4
"""About so many on a logarithmic axis: plotly crowds it otherwise."""

_HOVER = "%{hovertext}<extra></extra>"
_HOVER_WIDTH = 46
"""Letters in a line: plotly breaks none, and telephones are narrow."""
_LETTER = 0.016
"""The width of a letter as a share of a panel's."""
_LEAST = 0.05
"""The share of an axis below which a span has no room for its name, even upright."""
_HEAD = 1.1
"""How high spans go, in heights of the panel: their names stand above the lines."""
_BESIDE = 12
"""Letters in a line of what stands beside a panel."""


def interactive(plot: Plot) -> list[dict[str, Any]]:
    """A figure's panels, each a figure of plotly: `data` and `layout`, ready for JSON.

    Panels are figures of their own so that a page can put them side by side or below each other.
    Colors are those for light paper.
    """
    return [{"data": drawn.data, "layout": drawn.layout} for drawn in drawn_panels(plot)]


@dataclass(frozen=True)
class Drawn:
    """A panel as plotly draws it.

    Args:
        data, layout: plotly's, ready for JSON.
        lines: the name of the line that each trace belongs to; None for cells.
        colors: the variable of the page that holds each trace's color; None for cells.
    """

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    lines: list[str | None]
    colors: list[str | None]


def drawn_panels(plot: Plot) -> list[Drawn]:
    """The panels of a figure, with what a page needs to recolor and to hide lines."""
    marks = marks_of(plot)
    return [
        _chart(panel, marks) if isinstance(panel, Chart) else _heat_map(panel, marks)
        for panel in plot.panels
    ]


def _chart(chart: Chart, marks: dict[str, Mark]) -> Drawn:
    layout = _layout(chart.x, chart.y, [line.name for line in chart.lines])
    layout["shapes"] = [*_spans(chart), *map(_level, chart.levels)]
    layout["annotations"] = [
        _beside(level, chart.y)
        for level in chart.levels
        if level.y > 0 or chart.y.scale == "linear"
    ]
    if chart.spans:
        layout["xaxis"]["showgrid"] = False  # it would cross their names
        layout["legend"]["y"] = _HEAD + 0.01
    if chart.levels:
        layout["margin"]["r"] = 8 + 8 * max(len(part) for part in _level_names(chart))
    return Drawn(
        _traces(chart, marks),
        _json(go.Layout(layout)),
        [line.name for line in chart.lines],
        [marks[line.name].variable for line in chart.lines],
    )


def _heat_map(heat: HeatMap, marks: dict[str, Mark]) -> Drawn:
    heat = _straightened(heat)
    cells: dict[str, Any] = {
        "x": _numbers(heat.x_edges),
        "y": _numbers(heat.y_edges),
        "z": [_numbers(row) for row in heat.values],
        "hovertext": [[_hover(told) for told in row] for row in _told_cells(heat)],
        "hovertemplate": _HOVER,
        "xgap": 1,
        "ygap": 1,
        "showlegend": False,
        **(_kinds(heat) if heat.kinds else _color_bar(heat)),
    }
    if heat.texts is not None:
        cells["text"] = [[_label(text) for text in row] for row in heat.texts]
        cells["texttemplate"] = "%{text}"
    layout = _layout(heat.x, heat.y, [line.name for line in heat.lines])
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"showgrid": False, "showline": False}
    # Lines stand out from cells by an edge in the color of the paper.
    above = _traces(heat, marks)
    drawn = [trace for line in above for trace in (_edge(line), line)]
    names = [name for line in heat.lines for name in (line.name, line.name)]
    colors = [each for line in heat.lines for each in ("paper", marks[line.name].variable)]
    return Drawn(
        [_json(go.Heatmap(cells)), *drawn],
        _json(go.Layout(layout)),
        [None, *names],
        [None, *colors],
    )


def _edge(line: dict[str, Any]) -> dict[str, Any]:
    drawn = {key: line[key] for key in ("x", "y", "legendgroup")}
    drawn |= {"mode": "lines", "line": {"color": "#ffffff", "width": 4}, "opacity": 0.8}
    return _json(go.Scatter(drawn, hoverinfo="skip", showlegend=False))


def _straightened(heat: HeatMap) -> HeatMap:
    """Logarithmic axes as linear ones of logarithms, for plotly writes into the arithmetic middle
    of cells."""
    lines = tuple(replace(line, told=tuple(_told_points(line, heat))) for line in heat.lines)
    if heat.x.scale == "log":
        heat = replace(heat, x=_of_logs(heat.x, heat.x_edges), x_edges=_logs(heat.x_edges))
        lines = tuple(replace(line, x=_logs(line.x)) for line in lines)
    if heat.y.scale == "log":
        heat = replace(heat, y=_of_logs(heat.y, heat.y_edges), y_edges=_logs(heat.y_edges))
        lines = tuple(replace(line, y=_logs(line.y), low=None, high=None) for line in lines)
    return replace(heat, lines=lines)


def _of_logs(axis: Axis, edges: Sequence[float]) -> Axis:
    ticks = axis.ticks
    if ticks is None:
        first, last = (math.log10(edge) for edge in (min(edges), max(edges)))
        ticks = tuple((10.0**k, f"{10.0**k:g}") for k in range(math.ceil(first), int(last) + 1))
    return Axis(axis.label, ticks=tuple((math.log10(place), text) for place, text in ticks))


def _logs(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(math.log10(value) if value > 0 else math.nan for value in values)


def _color_bar(heat: HeatMap) -> dict[str, Any]:
    bar = _bar() | {"title": {"text": _label(heat.unit, 24), "side": "right"}}
    # Values on both sides of zero have two colors, the others one order from dark to light.
    colors = "RdBu" if heat.low < 0 < heat.high else "Cividis"
    turned = {"colorscale": colors, "reversescale": colors == "RdBu"}
    return {"zmin": heat.low, "zmax": heat.high, "colorbar": bar, **turned}


def _kinds(heat: HeatMap) -> dict[str, Any]:
    """Steps of color, with the names beside them."""
    count = len(heat.kinds)
    colors = [KIND_COLORS[place % len(KIND_COLORS)] for place in range(count)]
    ends = [(place / count, (place + 1) / count) for place in range(count)]
    names = [_label(name, 14) for name in heat.kinds]
    bar = _bar() | {"tickvals": list(range(count)), "ticktext": names, "ticks": ""}
    return {
        "zmin": -0.5,
        "zmax": count - 0.5,
        "colorscale": [
            [end, color] for pair, color in zip(ends, colors, strict=True) for end in pair
        ],
        "colorbar": bar | {"title": {"text": _label(heat.unit, 14), "side": "top"}},
    }


def _bar() -> dict[str, Any]:
    return {"thickness": 12, "outlinewidth": 0, "x": 1.02, "xpad": 4}


def _told_cells(heat: HeatMap) -> list[list[str]]:
    """What cells say when they are pointed at; their value if nothing else."""
    if heat.told is not None:
        return [list(row) for row in heat.told]
    return [[_told_value(value, heat) for value in row] for row in heat.values]


def _told_value(value: float | None, heat: HeatMap) -> str:
    if value is None or not math.isfinite(value):
        return "not measured"
    return heat.kinds[int(value)] if heat.kinds else f"{heat.unit}: {value:.4g}"


def _traces(panel: Chart | HeatMap, marks: dict[str, Mark]) -> list[dict[str, Any]]:
    names = [line.name for line in panel.lines]
    return [
        # A name that comes twice, as that of points and of their fit, stands in the legend once.
        _trace(line, panel, marks[line.name], shown=line.name not in names[:place])
        for place, line in enumerate(panel.lines)
    ]


def _trace(line: Line, panel: Chart | HeatMap, mark: Mark, *, shown: bool) -> dict[str, Any]:
    color = (REFERENCE_COLOR if mark.color is None else COLORS[mark.color])[0]
    measured = line.kind == "measured"
    width = {"measured": 1.2, "curve": 2.2, "fit": 1.2, "reference": 1.6}[line.kind]
    trace: dict[str, Any] = {
        "name": _label(line.name),
        "legendgroup": _label(line.name),
        "showlegend": shown,
        "x": _numbers(line.x),
        "y": _numbers(line.y),
        "mode": "lines+markers" if measured else "lines",
        "line": {"color": color, "width": width, "dash": mark.dash},
        "hovertext": [_hover(f"{line.name}\n{told}") for told in _told_points(line, panel)],
        "hovertemplate": _HOVER,
    }
    if measured:
        trace["marker"] = {"color": color, "size": 8, "symbol": mark.symbol}
    if line.low is not None and line.high is not None:
        trace["error_y"] = _error_bars(line.y, line.low, line.high, color)
    return _json(go.Scatter(trace))


def _error_bars(
    y: Sequence[float], low: Sequence[float], high: Sequence[float], color: str
) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": _numbers([max(top - middle, 0.0) for top, middle in zip(high, y, strict=True)]),
        "arrayminus": _numbers([max(m - bottom, 0.0) for m, bottom in zip(y, low, strict=True)]),
        "color": color,
        "thickness": 1.2,
        "width": 3,
    }


def _told_points(line: Line, panel: Chart | HeatMap) -> list[str]:
    if line.told:
        return list(line.told)
    told = [
        f"{panel.x.label}: {x:.5g}\n{panel.y.label}: {y:.5g}"
        for x, y in zip(line.x, line.y, strict=True)
    ]
    if line.low is None or line.high is None:
        return told
    return [
        f"{each}\n{low:.5g} to {high:.5g} over seeds"
        for each, low, high in zip(told, line.low, line.high, strict=True)
    ]


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


def _beside(level: Level, axis: Axis) -> dict[str, Any]:
    """A level's name to the right of the axes: beside lines, not over them."""
    return {
        "text": _label(level.name, _BESIDE),
        "showarrow": False,
        "xref": "x domain",
        "x": 1,
        "xanchor": "left",
        "align": "left",
        # Of annotations, and of nothing else, plotly wants logarithms.
        "y": math.log10(level.y) if axis.scale == "log" else level.y,
    }


def _level_names(chart: Chart) -> list[str]:
    return [part for level in chart.levels for part in textwrap.wrap(level.name, _BESIDE)]


def _spans(chart: Chart) -> list[dict[str, Any]]:
    """Shaded parts, every second one darker, with their names above the lines. Names that have no
    room stand upright, and where there is none at all they are left to the caption."""
    return [
        {
            "type": "rect",
            "yref": "y domain",
            "y0": 0,
            "y1": _HEAD,
            "x0": span.start,
            "x1": span.end,
            "layer": "below",
            "line": {"width": 0},
            "fillcolor": f"rgba(128, 128, 128, {0.16 if place % 2 else 0.07})",
            "label": {
                "text": _label(span.name) if share > _LEAST else "",
                "textposition": "top center",
                "textangle": 0 if share > _LETTER * len(span.name) else -90,
            },
        }
        for place, span in enumerate(chart.spans)
        for share in (_share(span.start, span.end, chart),)
    ]


def _share(start: float, end: float, chart: Chart) -> float:
    """The share of the x axis that lies between two places."""
    places = [x for line in chart.lines for x in line.x]
    places += [x for span in chart.spans for x in (span.start, span.end)]
    if chart.x.scale == "log":
        start, end, *places = (math.log(max(x, 1e-300)) for x in (start, end, *places))
    width = max(places) - min(places)
    return (end - start) / width if width > 0 else 1.0


def _layout(x: Axis, y: Axis, names: Sequence[str]) -> dict[str, Any]:
    return {
        "autosize": True,
        "margin": {"l": 56, "r": 20, "t": 12, "b": 48},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "showlegend": bool(names),
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "bgcolor": "rgba(0, 0, 0, 0)",
        },
        "xaxis": _axis(x),
        "yaxis": _axis(y),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "title": {"text": _label(axis.label), "standoff": 10},
        "type": axis.scale,
        "automargin": True,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "exponentformat": "power",
        "minexponent": 4,
    }
    if axis.scale == "log" and axis.ticks is None:
        drawn["nticks"] = _LOG_TICKS
    if axis.ticks is not None:
        drawn["tickmode"] = "array"
        drawn["tickvals"] = [place for place, _ in axis.ticks]
        drawn["ticktext"] = [_label(text) for _, text in axis.ticks]
    return drawn


def _label(text: str, width: int | None = None) -> str:
    """Text that plotly draws as it is, broken into lines where a width is given."""
    lines = text.splitlines()
    if width is not None:
        lines = [part for line in lines for part in textwrap.wrap(line, width) or [""]]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def _hover(text: str) -> str:
    return _label(text, _HOVER_WIDTH)


def _json(drawn: Any) -> dict[str, Any]:
    """What plotly has found valid, as JSON holds it."""
    return json.loads(json.dumps(drawn.to_plotly_json(), allow_nan=False))


def _numbers(values: Sequence[float | None]) -> list[float | None]:
    """Seven digits, which no eye tells from all; None where there is no number."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.7g}")
        for value in values
    ]
