"""What is measured for a claim: tasks of the run store, whose results make numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from factmem.errors import FactmemError
from factmem.runs.store import Store
from factmem.runs.sweep import Known, Wanted
from factmem.runs.task import Measure, Task

__all__ = ["Measurement", "MeasurementError", "Runs", "Together", "direct", "kept_of"]


class MeasurementError(FactmemError):
    """What was measured says nothing about the claim."""


@runtime_checkable
class Measurement(Protocol):
    """Tasks, of which some may depend on the results of others, and what they come to."""

    def wanted(self, known: Known, /) -> Wanted:
        """What is still to be done, given what is known."""
        ...

    def result(self, known: Known, /) -> Any:
        """What was measured, once nothing is wanted any more."""
        ...


@dataclass(frozen=True)
class Runs:
    """Tasks that do not depend on each other; the result is the list of what they measured."""

    tasks: tuple[Task, ...]

    def wanted(self, known: Known) -> Wanted:
        """Those that are missing."""
        return Wanted([task for task in self.tasks if task.identity not in known])

    def result(self, known: Known) -> list[Mapping[str, Any]]:
        """The metrics of each task, in their order."""
        return [known[task.identity].metrics or {} for task in self.tasks]


@dataclass(frozen=True)
class Together:
    """Several measurements under names; the result has one entry for each."""

    parts: Mapping[str, Measurement]

    def wanted(self, known: Known) -> Wanted:
        """What any of them lacks."""
        return Wanted.of_all([part.wanted(known) for part in self.parts.values()])

    def result(self, known: Known) -> dict[str, Any]:
        """The result of each."""
        return {name: part.result(known) for name, part in self.parts.items()}


def direct(function: Callable[..., Mapping[str, Any]], seeds: Sequence[int], **config: Any) -> Runs:
    """One run a seed of a function that checks the code that is here: never read from a store."""
    measure = Measure(f"claim: {function.__name__}", 1, function, kept=False)
    return Runs(tuple(Task(measure, {**config, "seed": seed}) for seed in seeds))


def kept_of(measurement: Measurement, store: Store) -> dict[str, Any] | None:
    """All runs of a measurement, if a store has them; None if one is missing."""
    known: dict[str, Any] = {}
    while needed := measurement.wanted(known).needed:
        for task in needed:
            record = store.get(task.identity) if task.measure.kept else None
            if record is None or record.error is not None:
                return None
            known[task.identity] = record
    return known
