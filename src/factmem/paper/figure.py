"""Figures of the paper: what is measured for each, and the plot of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from factmem._core.errors import FactmemError
from factmem.experiments.measurement import Measurement, unique_tasks
from factmem.experiments.scheduler import PendingTasks, Records
from factmem.experiments.task import Task
from factmem.plotting.plot import Plot

__all__ = ["FigureGroup", "PaperFigure", "Scale", "progress_note"]

Scale = Literal["quick", "paper"]
"""`quick` takes minutes on a laptop; `paper` is the authors' full grid."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper.

    Args:
        name: its name on the command line, such as `4-left`.
        title: one line.
        description: what it shows and why it matters, in plain words.
        measurement: what is measured.
        plot: turns the result of the measurement into a plot.
        allows_partial: whether it can be drawn before all runs are finished.
    """

    name: str
    title: str
    description: str
    measurement: Measurement
    plot: Callable[[Any], Plot]
    allows_partial: bool = False

    def draw(self, known: Records) -> Plot:
        """Return the plot of the finished runs.

        Raises:
            FactmemError: runs are missing or failed, and the figure needs them.
        """
        missing = len(self.measurement.pending(known).needed)
        if missing and not self.allows_partial:
            runs = "1 run is" if missing == 1 else f"{missing} runs are"
            raise FactmemError(f"figure {self.name} needs all of its runs; {runs} missing")
        result = self.measurement.result(known)
        if not self.allows_partial and not all(result):
            raise FactmemError(f"figure {self.name} cannot be drawn because one of its runs failed")
        return self.plot(result)


def progress_note(done: int, total: int, unit: str) -> str:
    """Return a sentence for the caption of an unfinished figure; empty if it is complete."""
    return "" if done >= total else f" So far {done} of {total} {unit} are finished."


class FigureGroup:
    """Several figures as one measurement, whose result is the list of their plots."""

    def __init__(self, figures: Sequence[PaperFigure]) -> None:
        self.figures = figures

    @property
    def measurements(self) -> list[Measurement]:
        """The measurement of each figure."""
        return [figure.measurement for figure in self.figures]

    def pending(self, known: Records) -> PendingTasks:
        """Return the pending tasks of all figures."""
        return PendingTasks.interleave([part.pending(known) for part in self.measurements])

    def result(self, known: Records) -> list[Plot]:
        """Return the plot of each figure, in order."""
        return [figure.draw(known) for figure in self.figures]

    def used_tasks(self, known: Records) -> Sequence[Task]:
        """Return the tasks of all figures, each once."""
        return unique_tasks(self.measurements, known)

    def remaining(self, known: Records) -> int:
        """Estimate the remaining tasks; a task shared by several figures counts for each."""
        return sum(part.remaining(known) for part in self.measurements)
