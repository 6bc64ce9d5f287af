"""What a figure of the paper is: what is measured for it, and what it then shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from factmem._core.errors import FactmemError
from factmem.experiments.measurement import Measurement
from factmem.experiments.scheduler import Records, PendingTasks
from factmem.plotting.plot import Plot

__all__ = ["FigureScale", "Figures", "PaperFigure", "so_far"]

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
        by_parts: whether it can be drawn of a part of what is measured.
    """

    name: str
    title: str
    told: str
    measured: Measurement
    plot: Callable[[Any], Plot]
    by_parts: bool = False

    def drawn(self, known: Records) -> Plot:
        """What it shows of what is known.

        Raises:
            FactmemError: that is too little.
        """
        missing = len(self.measured.pending(known).needed)
        if missing and not self.by_parts:
            raise FactmemError(f"figure {self.name} is drawn whole, and {missing} runs are missing")
        result = self.measured.result(known)
        if not self.by_parts and not all(result):
            raise FactmemError(f"figure {self.name} cannot be drawn, for a run of it failed")
        return self.plot(result)


def so_far(there: int, whole: int, of: str) -> str:
    """For a caption: how much is missing, if anything is."""
    return "" if there >= whole else f" So far {there} of {whole} {of} are there."


class Figures:
    """Several figures as one measurement, whose result is the plot of each."""

    def __init__(self, figures: Sequence[PaperFigure]) -> None:
        self.figures = figures

    def pending(self, known: Records) -> PendingTasks:
        """What any of them lacks."""
        return PendingTasks.of_all([figure.measured.pending(known) for figure in self.figures])

    def remaining(self, known: Records) -> int:
        """About how many runs are still to be made."""
        return sum(figure.measured.remaining(known) for figure in self.figures)

    def result(self, known: Records) -> list[Plot]:
        """Every figure, in their order."""
        return [figure.drawn(known) for figure in self.figures]
