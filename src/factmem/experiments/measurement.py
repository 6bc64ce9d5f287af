"""Measurements: sets of tasks whose records are combined into one result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from factmem.experiments.scheduler import PendingTasks, Records, SweepState, read_stored, sweep
from factmem.experiments.search import Bracket
from factmem.experiments.store import Record, Store
from factmem.experiments.task import Experiment, Task
from factmem.experiments.workers import Workers

__all__ = [
    "IndependentTasks",
    "Measurement",
    "MeasurementGroup",
    "Progress",
    "complete_records",
    "measure",
    "stored_records",
    "uncached_tasks",
]


@runtime_checkable
class Measurement(Protocol):
    """Tasks, some of which may depend on the results of others, and the result of all of them."""

    def pending(self, known: Records, /) -> PendingTasks:
        """Return the tasks that are still to be executed."""
        ...

    def result(self, known: Records, /) -> Any:
        """Return the result: the complete one if nothing is pending, else a part of it."""
        ...

    def used_tasks(self, known: Records, /) -> Sequence[Task]:
        """Return the tasks that `result` uses, as far as they are determined."""
        ...

    def remaining(self, known: Records, /) -> int:
        """Estimate how many tasks are still to be executed."""
        ...


@dataclass(frozen=True)
class IndependentTasks:
    """Tasks that do not depend on each other; the result is the list of their metrics."""

    tasks: tuple[Task, ...]

    def pending(self, known: Records) -> PendingTasks:
        """Return the tasks without a record."""
        return PendingTasks([task for task in self.tasks if task.identity not in known])

    def result(self, known: Records) -> list[Mapping[str, Any]]:
        """Return the metrics of each task; an empty dict if it failed or is missing."""
        records = [known.get(task.identity) for task in self.tasks]
        return [{} if record is None else record.metrics or {} for record in records]

    def used_tasks(self, known: Records) -> Sequence[Task]:
        """Return all tasks."""
        return self.tasks

    def remaining(self, known: Records) -> int:
        """Count the tasks without a record."""
        return len(self.pending(known).needed)


@dataclass(frozen=True)
class MeasurementGroup:
    """Several named measurements; the result is a dict with one entry for each.

    Args:
        parts: the measurements.
        order: sort key of a task: smaller first. Without it, or where keys are equal, the
            measurements take turns.
    """

    parts: Mapping[str, Measurement]
    order: Callable[[Task], float] | None = None

    def pending(self, known: Records) -> PendingTasks:
        """Return the pending tasks of all parts."""
        pending = PendingTasks.interleave([part.pending(known) for part in self.parts.values()])
        if self.order is None:
            return pending
        return PendingTasks(sorted(pending.needed, key=self.order), pending.speculative)

    def result(self, known: Records) -> dict[str, Any]:
        """Return the result of each part."""
        return {name: part.result(known) for name, part in self.parts.items()}

    def used_tasks(self, known: Records) -> Sequence[Task]:
        """Return the tasks of all parts, each once."""
        return unique_tasks(self.parts.values(), known)

    def remaining(self, known: Records) -> int:
        """Estimate the remaining tasks; a task shared by several parts counts for each."""
        return sum(part.remaining(known) for part in self.parts.values())


def unique_tasks(parts: Iterable[Measurement], known: Records) -> list[Task]:
    """Return the tasks of several measurements, each once, in order."""
    tasks = {task.identity: task for part in parts for task in part.used_tasks(known)}
    return list(tasks.values())


def uncached_tasks(
    function: Callable[..., Mapping[str, Any]], seeds: Sequence[int], **config: Any
) -> IndependentTasks:
    """Return one task per seed that is never cached, because it tests the installed code."""
    experiment = Experiment(function.__name__, 1, function, stored=False)
    return IndependentTasks(tuple(Task(experiment, {**config, "seed": seed}) for seed in seeds))


def stored_records(measurement: Measurement, store: Store) -> dict[str, Record]:
    """Return the records of a measurement that a store has."""
    return read_stored(measurement.pending, store, {})[0]


def complete_records(measurement: Measurement, store: Store) -> dict[str, Record] | None:
    """Return all records of a measurement, or None if the store lacks one."""
    known, missing = read_stored(measurement.pending, store, {})
    return None if missing.needed else known


@dataclass(frozen=True)
class Progress:
    """The progress of a measurement.

    Args:
        done: number of finished runs.
        running: number of running tasks.
        remaining: estimated number of further runs.
        known: the finished runs.
        brackets: for a capacity search, the bracket of each seed of the current problem.
    """

    done: int
    running: int
    remaining: int
    known: Records = field(default_factory=dict, repr=False)
    brackets: tuple[Bracket, ...] = ()


def measure(
    measurement: Measurement,
    store: Store,
    workers: Workers,
    *,
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Any:
    """Execute all tasks of a measurement and return its result.

    Args:
        measurement: what to measure.
        store: results that it has are not measured again; new results are written to it.
        workers: the processes that execute tasks.
        fresh: ignore stored results and replace them.
        report: called every second and after every run.
    """

    def report_state(state: SweepState) -> None:
        assert report is not None
        remaining = max(measurement.remaining(state.known), state.running)
        report(Progress(len(state.known), state.running, remaining, state.known))

    known = sweep(
        measurement.pending,
        store,
        workers,
        fresh=fresh,
        report=None if report is None else report_state,
    )
    if report is not None:
        report(Progress(len(known), 0, 0, known))
    return measurement.result(known)
