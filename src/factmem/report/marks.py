"""Colors, markers and dashes. Lines differ in all three, so that they differ without colors."""

from collections.abc import Iterable
from dataclasses import dataclass

from factmem.plotting.plot import Line, Plot, looks

__all__ = ["COLORS", "KIND_COLORS", "REFERENCE_COLOR", "Mark", "line_names", "marks_of"]

COLORS = (
    ("#1b6ca8", "#6cb6ee"),
    ("#d1495b", "#ff8a94"),
    ("#2e8b3c", "#6fcf7c"),
    ("#7a5195", "#c3a0e0"),
    ("#8a6d3b", "#d6b878"),
    ("#0b7f86", "#5fc9cf"),
    ("#b83280", "#f28cc9"),
    ("#444444", "#c4c8cc"),
)
"""Of lines, on light and on dark paper."""
REFERENCE_COLOR = ("#6f767d", "#9aa1a8")
"""Of what the paper or a theory says."""
KIND_COLORS = ("#9fc5e8", "#f4a582", "#35648f", "#b2182b", "#d9d9d9", "#5e8c61", "#c9a227")
"""Of cells that are of one kind or another; neighbors differ in lightness."""

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "star")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


@dataclass(frozen=True)
class Mark:
    """How one line is drawn.

    Args:
        color: its place in `COLORS`; None for a reference.
        symbol: of its points.
        dash: of its line.
    """

    color: int | None
    symbol: str
    dash: str

    @property
    def variable(self) -> str:
        """The page's variable that holds its color."""
        return "reference" if self.color is None else f"line-{self.color}"


def line_names(plot: Plot) -> tuple[str, ...]:
    """The names of all lines of a figure, each once."""
    return tuple(dict.fromkeys(line.name for line in _lines(plot)))


def marks_of(plot: Plot) -> dict[str, Mark]:
    """How each line is drawn, by name: the same in all panels.

    A fit has the color of the measured line before it, for it belongs to it.
    """
    each = looks(_lines(plot))
    marks: dict[str, Mark] = {}
    references, measured = 0, 0
    for line in _lines(plot):
        if line.own:
            color, symbol = each[line.name]
            measured = color % len(COLORS)
            dash = _DASHES[color % len(_DASHES)]
            marks[line.name] = Mark(measured, _SYMBOLS[symbol % len(_SYMBOLS)], dash)
        elif line.name in marks:
            continue
        elif line.kind == "fit" and each:
            marks[line.name] = Mark(measured, "circle", "solid")
        else:
            references += 1
            dash = _DASHES[1:][(references - 1) % (len(_DASHES) - 1)]
            marks[line.name] = Mark(None, "circle", dash)
    return marks


def _lines(plot: Plot) -> Iterable[Line]:
    for panel in plot.panels:
        yield from panel.lines
