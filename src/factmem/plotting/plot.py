"""The description of a figure, independent of the library that draws it.

A `Plot` is drawn by matplotlib (`draw_matplotlib`) for papers and by plotly (`draw_plotly`) for web
pages. All text is plain text; the backends escape it.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from factmem._core.errors import FactmemError

__all__ = [
    "Axis",
    "Chart",
    "DataTable",
    "HeatMap",
    "Level",
    "Line",
    "Note",
    "Plot",
    "Slope",
    "Span",
]

Value = str | int | float | None
_MAX_INTERVAL_WIDTH = 0.3
"""Wider confidence intervals of a slope are inconclusive."""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        label: the quantity and its unit.
        scale: linear or logarithmic.
        ticks: positions and labels of the ticks; chosen by the backend if omitted.
        limits: lowest and highest visible value; None to fit the data.
    """

    label: str
    scale: Literal["linear", "log"] = "linear"
    ticks: tuple[tuple[float, str], ...] | None = None
    limits: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Line:
    """A series of points.

    Args:
        name: label in the legend.
        x, y: coordinates of the points.
        low, high: range of y at each point, such as the minimum and maximum over seeds.
        kind: `measured` points have markers joined by a line, `points` have markers only, a `curve`
            has no markers, a `fit` is drawn thin in the color of the line before it, and a
            `reference` (a result of the paper or of theory) is gray.
        hover_texts: a sentence about each point, shown on hover.
        group: lines of one group share a color and differ in their markers.
        x_low, x_high: range of x at each point.
        in_legend: whether the line is listed in the legend.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    kind: Literal["measured", "points", "curve", "fit", "reference"] = "measured"
    hover_texts: tuple[str, ...] = ()
    group: str = ""
    x_low: tuple[float, ...] | None = None
    x_high: tuple[float, ...] | None = None
    in_legend: bool = True

    @property
    def has_own_style(self) -> bool:
        """Whether the line has a color of its own, unlike fits and references."""
        return self.kind in ("measured", "points", "curve")

    @property
    def has_markers(self) -> bool:
        """Whether a marker is drawn at each point."""
        return self.kind in ("measured", "points")

    def __post_init__(self) -> None:
        columns = (self.y, self.low, self.high, self.x_low, self.x_high, self.hover_texts or None)
        lengths = {len(column) for column in columns if column is not None}
        if lengths != {len(self.x)}:
            raise FactmemError(
                f"line '{self.name}': all columns must have one value per x ({len(self.x)}), "
                f"got lengths {sorted(lengths)}"
            )


@dataclass(frozen=True)
class Level:
    """A labeled horizontal line, such as log D."""

    name: str
    y: float


@dataclass(frozen=True)
class Span:
    """A labeled interval of the x axis, such as a stage of training."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Note:
    """A text whose lower right corner is at a point of the chart."""

    text: str
    x: float
    y: float


@dataclass(frozen=True)
class Chart:
    """Lines over two axes.

    Args:
        x, y: the axes.
        lines: the series.
        title: title of this panel.
        levels: labeled horizontal lines.
        spans: shaded intervals of the x axis.
        notes: texts inside the chart.
        spans_label: label beside the names of `spans`; drawn only if there are `brackets`.
        brackets: intervals to compare `spans` with, drawn as brackets above the chart.
        brackets_label: label beside the brackets.
    """

    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    title: str = ""
    levels: tuple[Level, ...] = ()
    spans: tuple[Span, ...] = ()
    notes: tuple[Note, ...] = ()
    spans_label: str = ""
    brackets: tuple[Span, ...] = ()
    brackets_label: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A grid of colored cells.

    Args:
        x, y: the axes.
        x_edges, y_edges: edges of the cells; one more than the number of cells.
        values: one row per interval of y; None where nothing was measured.
        value_label: the quantity that colors show.
        title: title of this panel.
        texts: text inside each cell.
        hover_texts: a sentence about each cell, shown on hover.
        low, high: values at the two ends of the color scale.
        categories: names of categories; if given, each value is an index into them.
        lines: lines over the map, such as a frontier.
        value_ticks: values and labels of the ticks on the color bar.
    """

    x: Axis
    y: Axis
    x_edges: tuple[float, ...]
    y_edges: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]
    value_label: str
    title: str = ""
    texts: tuple[tuple[str, ...], ...] | None = None
    hover_texts: tuple[tuple[str, ...], ...] | None = None
    low: float = 0.0
    high: float = 1.0
    categories: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    value_ticks: tuple[tuple[float, str], ...] | None = None

    @property
    def diverging(self) -> bool:
        """Whether colors tell negative from positive values."""
        return self.low < 0 < self.high

    def __post_init__(self) -> None:
        size = (len(self.y_edges) - 1, len(self.x_edges) - 1)
        for grid in (self.values, self.texts, self.hover_texts):
            if grid is not None and (len(grid), *{len(row) for row in grid}) != size:
                raise FactmemError(
                    f"a heat map of {size[0]} × {size[1]} cells needs {size[0]} rows of {size[1]} "
                    f"entries, got rows of {[len(row) for row in grid]}"
                )


@dataclass(frozen=True)
class Slope:
    """A fitted exponent with its 95% confidence interval.

    Args:
        name: the line that it was fitted to.
        law: the fitted law, such as `facts ∝ parameters^slope`.
        slope, low, high: the exponent and its interval; None if no law can be fitted.
        expected: the range that the interval should overlap.
        counts: whether the paper makes this statement; otherwise the line is our addition.
    """

    name: str
    law: str
    slope: float | None
    low: float | None
    high: float | None
    expected: tuple[float, float]
    counts: bool = True

    @property
    def conclusive(self) -> bool:
        """Whether the interval is narrow enough to decide."""
        if self.low is None or self.high is None:
            return False
        return self.high - self.low < _MAX_INTERVAL_WIDTH

    @property
    def holds(self) -> bool:
        """Whether the interval is conclusive and overlaps the expected range."""
        if self.low is None or self.high is None or not self.conclusive:
            return False
        return self.low <= self.expected[1] and self.expected[0] <= self.high

    @property
    def description(self) -> str:
        """The slope, its interval and the verdict in one sentence."""
        if self.slope is None:
            return f"{self.name}: no law can be fitted because a capacity is zero or unknown."
        verdict = "holds" if self.holds else "does not hold here"
        verdict = verdict if self.conclusive else "inconclusive"
        return (
            f"{self.name}: {self.law}, slope {self.slope:.2f} (95% interval {self.low:.2f} to "
            f"{self.high:.2f}, expected {self.expected[0]:g} to {self.expected[1]:g}): {verdict}."
        )


@dataclass(frozen=True)
class DataTable:
    """The numbers of a figure, as written to its CSV file."""

    header: tuple[str, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise FactmemError(
                    f"each row needs one value per column ({len(self.header)}), got {len(row)}"
                )

    @classmethod
    def of(cls, header: Sequence[str], rows: Sequence[Sequence[Value]]) -> "DataTable":
        """Build a table from any sequences."""
        return cls(tuple(header), tuple(tuple(row) for row in rows))

    @property
    def csv(self) -> str:
        """The table as CSV; None becomes an empty field."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)
        return text.getvalue()


@dataclass(frozen=True)
class Plot:
    """A figure, ready to be drawn.

    Args:
        name: short name, as used on the command line and in file names, such as `4-left`.
        title: title of the figure.
        panels: the panels, row by row.
        caption: what was run, what is shown, and what does not hold.
        data: the numbers.
        slopes: fitted exponents.
        columns: number of panels in a row.
        shared_legend: whether all panels share one legend where they are printed together.
    """

    name: str
    title: str
    panels: tuple[Chart | HeatMap, ...]
    caption: str = ""
    data: DataTable = DataTable()
    slopes: tuple[Slope, ...] = ()
    columns: int = 2
    shared_legend: bool = False
