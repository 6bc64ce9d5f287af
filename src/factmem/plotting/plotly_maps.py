"""Heat maps as traces of plotly."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

from factmem.plotting.plot import Axis, HeatMap
from factmem.plotting.plotly_lines import point_texts
from factmem.plotting.plotly_values import (
    HOVER_TEMPLATE,
    hover_text,
    label_text,
    rounded,
    to_json,
)
from factmem.plotting.styles import CATEGORY_COLORS

__all__ = ["cells_trace", "line_edge", "with_linear_axes"]


def with_linear_axes(heat_map: HeatMap) -> HeatMap:
    """Return the map with logarithms on linear axes instead of logarithmic axes.

    On logarithmic axes plotly would put texts at the arithmetic centers of cells.
    """
    lines = tuple(
        replace(line, hover_texts=tuple(point_texts(line, heat_map))) for line in heat_map.lines
    )
    if heat_map.x.scale == "log":
        x = _log_axis(heat_map.x, heat_map.x_edges)
        heat_map = replace(heat_map, x=x, x_edges=_logs(heat_map.x_edges))
        lines = tuple(replace(line, x=_logs(line.x), x_low=None, x_high=None) for line in lines)
    if heat_map.y.scale == "log":
        y = _log_axis(heat_map.y, heat_map.y_edges)
        heat_map = replace(heat_map, y=y, y_edges=_logs(heat_map.y_edges))
        lines = tuple(replace(line, y=_logs(line.y), low=None, high=None) for line in lines)
    return replace(heat_map, lines=lines)


def cells_trace(heat_map: HeatMap) -> dict[str, Any]:
    """Return the cells as one trace."""
    cells: dict[str, Any] = {
        "x": rounded(heat_map.x_edges),
        "y": rounded(heat_map.y_edges),
        "z": [rounded(row) for row in heat_map.values],
        "hovertext": [[hover_text(text) for text in row] for row in _cell_texts(heat_map)],
        "hovertemplate": HOVER_TEMPLATE,
        "xgap": 1,
        "ygap": 1,
        "showlegend": False,
        **(_category_colors(heat_map) if heat_map.categories else _color_scale(heat_map)),
    }
    if heat_map.texts is not None:
        cells["text"] = [[label_text(text) for text in row] for row in heat_map.texts]
        cells["texttemplate"] = "%{text}"
    return to_json(go.Heatmap(cells))


def line_edge(line: dict[str, Any]) -> dict[str, Any]:
    """Return a wide white trace to draw below a line, so that it stands out from the cells."""
    edge = {key: line[key] for key in ("x", "y", "legendgroup")}
    edge |= {"mode": "lines", "line": {"color": "#ffffff", "width": 4}, "opacity": 0.8}
    return to_json(go.Scatter(edge, hoverinfo="skip", showlegend=False))


def _log_axis(axis: Axis, edges: Sequence[float]) -> Axis:
    ticks = axis.ticks
    if ticks is None:
        first, last = (math.log10(edge) for edge in (min(edges), max(edges)))
        ticks = tuple((10.0**k, f"{10.0**k:g}") for k in range(math.ceil(first), int(last) + 1))
    return Axis(axis.label, ticks=tuple((math.log10(position), text) for position, text in ticks))


def _logs(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(math.log10(value) if value > 0 else math.nan for value in values)


def _color_scale(heat_map: HeatMap) -> dict[str, Any]:
    bar = _color_bar() | {"title": {"text": label_text(heat_map.value_label, 24), "side": "right"}}
    if heat_map.value_ticks is not None:
        bar["tickvals"] = [value for value, _ in heat_map.value_ticks]
        bar["ticktext"] = [label_text(text) for _, text in heat_map.value_ticks]
    return {
        "zmin": heat_map.low,
        "zmax": heat_map.high,
        "colorbar": bar,
        "colorscale": "RdBu" if heat_map.diverging else "Cividis",
        "reversescale": heat_map.diverging,
    }


def _category_colors(heat_map: HeatMap) -> dict[str, Any]:
    """Return a color scale of steps, with the names of categories beside them."""
    count = len(heat_map.categories)
    colors = [CATEGORY_COLORS[index % len(CATEGORY_COLORS)] for index in range(count)]
    steps = [(index / count, (index + 1) / count) for index in range(count)]
    names = [label_text(name, 14) for name in heat_map.categories]
    bar = _color_bar() | {"tickvals": list(range(count)), "ticktext": names, "ticks": ""}
    return {
        "zmin": -0.5,
        "zmax": count - 0.5,
        "colorscale": [
            [end, color] for step, color in zip(steps, colors, strict=True) for end in step
        ],
        "colorbar": bar | {"title": {"text": label_text(heat_map.value_label, 14), "side": "top"}},
    }


def _color_bar() -> dict[str, Any]:
    return {"thickness": 12, "outlinewidth": 0, "x": 1.02, "xpad": 4}


def _cell_texts(heat_map: HeatMap) -> list[list[str]]:
    """Return the hover text of each cell; its value by default."""
    if heat_map.hover_texts is not None:
        return [list(row) for row in heat_map.hover_texts]
    return [[_value_text(value, heat_map) for value in row] for row in heat_map.values]


def _value_text(value: float | None, heat_map: HeatMap) -> str:
    if value is None or not math.isfinite(value):
        return "not measured"
    if heat_map.categories:
        return heat_map.categories[int(value)]
    return f"{heat_map.value_label}: {value:.4g}"
