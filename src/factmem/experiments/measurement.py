"""What is measured for a claim or a figure: tasks of the run store, whose results make numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from factmem.experiments.scheduler import Records, PendingTasks, SweepState, read_stored, sweep
from factmem.experiments.store import Record, Store
from factmem.experiments.task import Experiment, Task
from factmem.experiments.workers import Workers

__all__ = [
    "Measurement",
    "MeasurementGroup",
    "Progress",
    "IndependentTasks",
    "direct",
    "complete_records",
    "measure",
    "stored_records",
]


@runtime_checkable
class Measurement(Protocol):
    """Tasks, of which some may depend on the results of others, and what they come to."""

    def pending(self, known: Records, /) -> PendingTasks:
        """What is still to be done, given what is known."""
        ...

    def result(self, known: Records, /) -> Any:
        """What was measured: all of it once nothing is wanted any more, a part of it before."""
        ...

    def remaining(self, known: Records, /) -> int:
        """About how many tasks are still to be done."""
        ...


@dataclass(frozen=True)
class IndependentTasks:
    """Tasks that do not depend on each other; the result is the list of what they measured."""

    tasks: tuple[Task, ...]

    def pending(self, known: Records) -> PendingTasks:
        """Those that are missing."""
        return PendingTasks([task for task in self.tasks if task.identity not in known])

    def result(self, known: Records) -> list[Mapping[str, Any]]:
        """The metrics of each task, in their order; none of those that failed or are missing."""
        records = [known.get(task.identity) for task in self.tasks]
        return [{} if record is None else record.metrics or {} for record in records]

    def remaining(self, known: Records) -> int:
        """How many are missing."""
        return len(self.pending(known).needed)


@dataclass(frozen=True)
class MeasurementGroup:
    """Several measurements under names; the result has one entry for each.

    Args:
        parts: the measurements.
        order: of a task: those with the least of it are done first. If left out, or where it is
            the same, the measurements take turns.
    """

    parts: Mapping[str, Measurement]
    order: Callable[[Task], float] | None = None

    def pending(self, known: Records) -> PendingTasks:
        """What any of them lacks."""
        wanted = PendingTasks.of_all([part.pending(known) for part in self.parts.values()])
        if self.order is None:
            return wanted
        return PendingTasks(sorted(wanted.needed, key=self.order), wanted.useful)

    def result(self, known: Records) -> dict[str, Any]:
        """The result of each."""
        return {name: part.result(known) for name, part in self.parts.items()}

    def remaining(self, known: Records) -> int:
        """Of all of them; tasks that several wait for are counted once by each."""
        return sum(part.remaining(known) for part in self.parts.values())


def unstored_tasks(function: Callable[..., Mapping[str, Any]], seeds: Sequence[int], **config: Any) -> IndependentTasks:
    """One run a seed of a function that checks the code that is here: never read from a store."""
    measure = Experiment(function.__name__, 1, function, kept=False)
    return IndependentTasks(tuple(Task(measure, {**config, "seed": seed}) for seed in seeds))


def stored_records(measurement: Measurement, store: Store) -> dict[str, Record]:
    """What a store has of a measurement."""
    return read_stored(measurement.pending, store, {})[0]


def complete_records(measurement: Measurement, store: Store) -> dict[str, Record] | None:
    """All runs of a measurement, if a store has them; None if one is missing."""
    known, missing = read_stored(measurement.pending, store, {})
    return None if missing.needed else known


@dataclass(frozen=True)
class Progress:
    """How far a measurement is.

    Args:
        done: runs that are there.
        running: those that are being made.
        left: about how many will be needed yet.
    """

    done: int
    running: int
    left: int


def measure(
    measurement: Measurement,
    store: Store,
    workers: Workers,
    *,
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Any:
    """Does all that a measurement wants, and gives its result.

    Args:
        measurement: what to measure.
        store: what is in it is not measured again; what is measured is kept in it.
        workers: who measures.
        fresh: whether the store is ignored.
        report: told every second and after every run how far it is.
    """

    def told(state: SweepState) -> None:
        assert report is not None
        report(Progress(len(state.known), state.running, measurement.remaining(state.known)))

    known = sweep(
        measurement.pending, store, workers, fresh=fresh, report=None if report is None else told
    )
    if report is not None:
        report(Progress(len(known), 0, 0))
    return measurement.result(known)
