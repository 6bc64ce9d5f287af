"""Colors, markers and dashes of lines. Lines differ in all three, so they differ in grayscale."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from factmem.plotting.plot import Line, Plot

__all__ = [
    "CATEGORY_COLORS",
    "LINE_COLORS",
    "REFERENCE_COLOR",
    "LineStyle",
    "TraceStyle",
    "legend_names",
    "line_styles",
    "trace_styles",
]

LINE_COLORS = (
    ("#1b6ca8", "#6cb6ee"),
    ("#d1495b", "#ff8a94"),
    ("#2e8b3c", "#6fcf7c"),
    ("#7a5195", "#c3a0e0"),
    ("#8a6d3b", "#d6b878"),
    ("#0b7f86", "#5fc9cf"),
    ("#b83280", "#f28cc9"),
    ("#444444", "#c4c8cc"),
)
"""Line colors of web pages, each for the light and for the dark theme."""
REFERENCE_COLOR = ("#6f767d", "#9aa1a8")
"""Color of reference lines for the light and for the dark theme."""
CATEGORY_COLORS = ("#9fc5e8", "#f4a582", "#35648f", "#b2182b", "#d9d9d9", "#5e8c61", "#c9a227")
"""Colors of categories in heat maps; neighbors differ in lightness."""

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "star")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


class LineStyle(NamedTuple):
    """Indices into a backend's colors and markers."""

    color: int
    marker: int


def line_styles(lines: Iterable[Line]) -> dict[str, LineStyle]:
    """Return the style of each line that has its own, by name.

    Lines of one group share a color. A line without a group uses one index for color and marker, so
    that it differs from all others in grayscale too.
    """
    groups: dict[str, list[str]] = {}
    styles: dict[str, LineStyle] = {}
    for line in lines:
        if line.has_own_style and line.name not in styles:
            group = line.group or line.name
            members = groups.setdefault(group, [])
            color = list(groups).index(group)
            styles[line.name] = LineStyle(color, len(members) if line.group else color)
            members.append(line.name)
    return styles


@dataclass(frozen=True)
class TraceStyle:
    """The style of a line on a web page.

    Args:
        color: index into `LINE_COLORS`; None for references.
        symbol: plotly's name of the marker.
        dash: plotly's name of the dash pattern.
    """

    color: int | None
    symbol: str
    dash: str

    @property
    def css_variable(self) -> str:
        """The CSS variable of the page that holds the color."""
        return "reference" if self.color is None else f"line-{self.color}"


def legend_names(plot: Plot) -> tuple[str, ...]:
    """Return the names of all lines in the legends of a plot, each once."""
    return tuple(dict.fromkeys(line.name for line in _lines(plot) if line.in_legend))


def trace_styles(plot: Plot) -> dict[str, TraceStyle]:
    """Return the style of each line by name; it is the same in all panels.

    A fit has the color of the line before it, which it was fitted to.
    """
    styles = line_styles(_lines(plot))
    traces: dict[str, TraceStyle] = {}
    references, last_color = 0, 0
    for line in _lines(plot):
        if line.has_own_style:
            color, marker = styles[line.name]
            last_color = color % len(LINE_COLORS)
            dash = _DASHES[color % len(_DASHES)]
            traces[line.name] = TraceStyle(last_color, _SYMBOLS[marker % len(_SYMBOLS)], dash)
        elif line.name in traces:
            continue
        elif line.kind == "fit" and styles:
            traces[line.name] = TraceStyle(last_color, "circle", "solid")
        else:
            dash = _DASHES[1:][references % (len(_DASHES) - 1)]
            traces[line.name] = TraceStyle(None, "circle", dash)
            references += 1
    return traces


def _lines(plot: Plot) -> Iterable[Line]:
    for panel in plot.panels:
        yield from panel.lines
