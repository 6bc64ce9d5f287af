"""What a figure shows, apart from how it is drawn.

A figure is made once, as a `Plot`, and drawn twice: by matplotlib for paper (`printed`) and by
plotly for the report (`factmem.report`). All text is plain: whoever draws escapes it.
"""

import csv
import io
from collections.abc import Iterable, Sequence
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
    "Plot",
    "Slope",
    "Span",
    "looks",
]

Cell = str | int | float | None
_WIDEST = 0.3
"""Of an interval that says something about a slope."""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        label: what is shown along it, with its unit.
        scale: `log` where factors count.
        ticks: places and what is written there; chosen by whoever draws if left out.
    """

    label: str
    scale: Literal["linear", "log"] = "linear"
    ticks: tuple[tuple[float, str], ...] | None = None


@dataclass(frozen=True)
class Line:
    """Points that belong together.

    Args:
        name: for the legend.
        x, y: the points.
        low, high: the least and the largest over seeds at each x, where there are several.
        kind: `measured` points have markers; a `curve` is followed closely; a `fit` is a straight
            line through measured points, a `reference` one of the paper or of theory.
        told: a sentence about each point, for those who point at it.
        group: lines of one group have one color, and differ in their markers.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    kind: Literal["measured", "curve", "fit", "reference"] = "measured"
    told: tuple[str, ...] = ()
    group: str = ""

    @property
    def own(self) -> bool:
        """Whether it has a color of its own: what was measured, and curves."""
        return self.kind in ("measured", "curve")

    def __post_init__(self) -> None:
        each = (self.y, self.low, self.high, self.told or None)
        if any(values is not None and len(values) != len(self.x) for values in each):
            raise FactmemError(f"the line '{self.name}' has not one value for each x")


def looks(lines: Iterable[Line]) -> dict[str, tuple[int, int]]:
    """Which color and which marker each line has that has its own, by name.

    Both are numbers. A line without a group has the same for both, so that it differ from all
    others without colors too.
    """
    groups: dict[str, list[str]] = {}
    found: dict[str, tuple[int, int]] = {}
    for line in lines:
        if line.own and line.name not in found:
            members = groups.setdefault(line.group or line.name, [])
            color = list(groups).index(line.group or line.name)
            found[line.name] = (color, len(members) if line.group else color)
            members.append(line.name)
    return found


@dataclass(frozen=True)
class Level:
    """A height that means something, such as log D."""

    name: str
    y: float


@dataclass(frozen=True)
class Span:
    """A part of the x axis that has a name, such as a stage of training."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Chart:
    """Lines over two axes."""

    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    title: str = ""
    levels: tuple[Level, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class HeatMap:
    """A grid of colored cells.

    Args:
        x, y: the axes.
        x_edges, y_edges: of the cells, one more than there are cells.
        values: by row, that is by y; None where nothing was measured.
        unit: what the colors mean.
        title: of this panel.
        texts: what is written into the cells, if anything.
        told: a sentence about each cell, for those who point at it.
        low, high: the values at the ends of the colors.
        kinds: if given, values are places in this list of names and colors mean nothing else.
        lines: drawn over it, such as a frontier.
    """

    x: Axis
    y: Axis
    x_edges: tuple[float, ...]
    y_edges: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]
    unit: str
    title: str = ""
    texts: tuple[tuple[str, ...], ...] | None = None
    told: tuple[tuple[str, ...], ...] | None = None
    low: float = 0.0
    high: float = 1.0
    kinds: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()

    def __post_init__(self) -> None:
        size = (len(self.y_edges) - 1, len(self.x_edges) - 1)
        for grid in (self.values, self.texts, self.told):
            if grid is not None and (len(grid), *{len(row) for row in grid}) != size:
                raise FactmemError(f"a map of {size[0]} × {size[1]} cells has as many values")


@dataclass(frozen=True)
class Slope:
    """A fitted exponent, beside what the paper says.

        Args:
            name: of the line.
            law: what is fitted, such as `facts ∝ parameters^slope`.
            slope, low, high: the exponent with its 95 % interval; None where no line can be fitted.
    expected: the range that its interval should meet.
            counts: whether this is the paper's own statement, and not a line beside it.
    """

    name: str
    law: str
    slope: float | None
    low: float | None
    high: float | None
    expected: tuple[float, float]
    counts: bool = True

    @property
    def says(self) -> bool:
        """Whether the interval is narrow enough to say something."""
        return self.low is not None and self.high is not None and self.high - self.low < _WIDEST

    @property
    def holds(self) -> bool:
        """Whether the interval says something, and meets the range."""
        if self.low is None or self.high is None or not self.says:
            return False
        return self.low <= self.expected[1] and self.expected[0] <= self.high

    @property
    def told(self) -> str:
        """In one sentence."""
        if self.slope is None:
            return f"{self.name}: no line can be fitted, for something was not stored or not found."
        verdict = "holds" if self.holds else "does not hold here"
        verdict = verdict if self.says else "too wide to tell"
        return (
            f"{self.name}: {self.law}, slope {self.slope:.2f} (95 % interval {self.low:.2f} to "
            f"{self.high:.2f}; asked to meet {self.expected[0]:g} to {self.expected[1]:g}): {verdict}."
        )


@dataclass(frozen=True)
class DataTable:
    """The numbers of a figure, as they go into its CSV file."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.header) for row in self.rows):
            raise FactmemError("a row of a table has one cell for each column")

    @classmethod
    def of(cls, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> "DataTable":
        """From any sequences."""
        return cls(tuple(header), tuple(tuple(row) for row in rows))

    @property
    def csv(self) -> str:
        """As CSV; what is missing is empty."""
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)
        return written.getvalue()


@dataclass(frozen=True)
class Plot:
    """A figure, ready to be drawn.

    Args:
        name: as the command line says it, such as `4-left`.
        title: above it.
        panels: side by side, `columns` in a row.
        caption: what was run, what is shown, and what does not hold.
        data: the numbers.
        slopes: that were fitted.
        columns: panels in a row.
    """

    name: str
    title: str
    panels: tuple[Chart | HeatMap, ...]
    caption: str
    data: DataTable
    slopes: tuple[Slope, ...] = ()
    columns: int = 2
