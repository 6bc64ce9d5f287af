"""What a figure of the paper is: what is measured for it, and what it then shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from factmem.figures.plot import Plot
from factmem.runs.measurement import Measurement
from factmem.runs.sweep import Known, Wanted

__all__ = ["FigureScale", "Figures", "PaperFigure"]

FigureScale = Literal["quick", "paper"]
"""`quick` takes minutes on a laptop; `paper` is the authors' full grid."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper, ready to be measured.

    Args:
        name: as the command line says it, such as `4-left`.
        title: one line.
        told: what it shows and why it matters, in plain words.
        measured: what is measured for it.
        plot: makes what it shows of the measurement's result.
    """

    name: str
    title: str
    told: str
    measured: Measurement
    plot: Callable[[Any], Plot]


class Figures:
    """Several figures as one measurement, whose result is the plot of each."""

    def __init__(self, figures: Sequence[PaperFigure]) -> None:
        self.figures = figures

    def wanted(self, known: Known) -> Wanted:
        """What any of them lacks."""
        return Wanted.of_all([figure.measured.wanted(known) for figure in self.figures])

    def left(self, known: Known) -> int:
        """About how many runs are still to be made."""
        return sum(figure.measured.left(known) for figure in self.figures)

    def result(self, known: Known) -> list[Plot]:
        """Every figure, in their order."""
        return [figure.plot(figure.measured.result(known)) for figure in self.figures]
