"""All figures, in the order of the paper."""

from collections.abc import Callable

from factmem._core.errors import FactmemError, visible
from factmem.paper.figure import FigureScale, PaperFigure
from factmem.paper.figure_1_left import figure_1_left
from factmem.paper.figure_1_right import figure_1_right
from factmem.paper.figure_2 import figure_2
from factmem.paper.figure_3 import figure_3
from factmem.paper.figure_4_left import figure_4_left
from factmem.paper.figure_4_right import figure_4_right
from factmem.paper.figure_5_left import figure_5_left
from factmem.paper.figure_5_right import figure_5_right
from factmem.paper.figure_6 import figure_6
from factmem.paper.figure_7 import figure_7
from factmem.paper.figure_8 import figure_8
from factmem.paper.figure_9 import figure_9

__all__ = ["FIGURES", "all_figures", "figure_named"]

FIGURES: dict[str, Callable[[FigureScale], PaperFigure]] = {
    "1-left": figure_1_left,
    "1-right": figure_1_right,
    "2": figure_2,
    "3": figure_3,
    "4-left": figure_4_left,
    "4-right": figure_4_right,
    "5-left": figure_5_left,
    "5-right": figure_5_right,
    "6": figure_6,
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
}


def all_figures(scale: FigureScale = "quick") -> tuple[PaperFigure, ...]:
    """Every figure at a scale."""
    return tuple(make(scale) for make in FIGURES.values())


def figure_named(name: str, scale: FigureScale = "quick") -> PaperFigure:
    """The figure of this name.

    Raises:
        FactmemError: there is none; the message lists those that there are.
    """
    if name not in FIGURES:
        raise FactmemError(f"no figure '{visible(name)}'; there are {', '.join(FIGURES)}")
    return FIGURES[name](scale)
