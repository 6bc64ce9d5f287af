"""Lines as traces of plotly."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from factmem.plotting.plot import Chart, HeatMap, Line
from factmem.plotting.plotly_values import (
    HOVER_TEMPLATE,
    hover_text,
    label_text,
    rounded,
    to_json,
)
from factmem.plotting.styles import LINE_COLORS, REFERENCE_COLOR, TraceStyle

__all__ = ["point_texts", "traces"]

_WIDTHS = {"measured": 1.2, "points": 1.2, "curve": 2.2, "fit": 1.2, "reference": 1.6}
_MODES = {"measured": "lines+markers", "points": "markers"}


def traces(panel: Chart | HeatMap, styles: dict[str, TraceStyle]) -> list[dict[str, Any]]:
    """Return a trace for each line of a panel, in the colors of the light theme."""
    names = [line.name for line in panel.lines]
    return [
        # Lines of one name, such as points and their fit, have one entry in the legend.
        _trace(line, panel, styles[line.name], listed=line.name not in names[:index])
        for index, line in enumerate(panel.lines)
    ]


def point_texts(line: Line, panel: Chart | HeatMap) -> list[str]:
    """Return the hover text of each point, without the name of the line."""
    if line.hover_texts:
        return list(line.hover_texts)
    texts = [
        f"{panel.x.label}: {x:.5g}\n{panel.y.label}: {y:.5g}"
        for x, y in zip(line.x, line.y, strict=True)
    ]
    if line.low is None or line.high is None:
        return texts
    return [
        f"{text}\n{low:.5g} to {high:.5g} over seeds"
        for text, low, high in zip(texts, line.low, line.high, strict=True)
    ]


def _trace(
    line: Line, panel: Chart | HeatMap, style: TraceStyle, *, listed: bool
) -> dict[str, Any]:
    color = (REFERENCE_COLOR if style.color is None else LINE_COLORS[style.color])[0]
    trace: dict[str, Any] = {
        "name": label_text(line.name),
        "legendgroup": label_text(line.name),
        "showlegend": listed and line.in_legend,
        "x": rounded(line.x),
        "y": rounded(line.y),
        "mode": _MODES.get(line.kind, "lines"),
        "line": {"color": color, "width": _WIDTHS[line.kind], "dash": style.dash},
        "hovertext": [hover_text(f"{line.name}\n{text}") for text in point_texts(line, panel)],
        "hovertemplate": HOVER_TEMPLATE,
    }
    if line.has_markers:
        trace["marker"] = {"color": color, "size": 8, "symbol": style.symbol}
    if line.low is not None and line.high is not None:
        trace["error_y"] = _error_bars(line.y, line.low, line.high, color)
    if line.x_low is not None and line.x_high is not None:
        trace["error_x"] = _error_bars(line.x, line.x_low, line.x_high, color)
    return to_json(go.Scatter(trace))


def _error_bars(
    values: Sequence[float], low: Sequence[float], high: Sequence[float], color: str
) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded([max(top - v, 0.0) for top, v in zip(high, values, strict=True)]),
        "arrayminus": rounded(
            [max(v - bottom, 0.0) for v, bottom in zip(values, low, strict=True)]
        ),
        "color": color,
        "thickness": 1.2,
        "width": 3,
    }
