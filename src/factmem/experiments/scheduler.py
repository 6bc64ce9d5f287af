"""Doing many tasks: what is in the store is read, what is missing is done and kept.

Which tasks there are may depend on results, as in a search. So the sweep is told by a function what
it wants, given what is known. Asked again after every result, that function is all there is to
resuming: a sweep that was killed asks the same, and the store answers.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, replace
from itertools import zip_longest

from factmem._core.errors import FactmemError
from factmem.experiments.execute import failure_record
from factmem.experiments.store import Record, Store
from factmem.experiments.task import Task
from factmem.experiments.workers import Workers

__all__ = ["Records", "PendingTasks", "SweepState", "read_stored", "sweep"]

_ATTEMPTS = 3
_SECONDS_BETWEEN_REPORTS = 1.0

Records = Mapping[str, Record]
"""IndependentTasks that ended, by the identity of their task."""


@dataclass(frozen=True)
class PendingTasks:
    """What is still to be done.

    Args:
        needed: tasks without which it does not go on.
        useful: tasks that may be needed, depending on the results of others; most likely first.
    """

    needed: Sequence[Task] = ()
    useful: Sequence[Task] = ()

    @classmethod
    def of_all(cls, each: Sequence["PendingTasks"]) -> "PendingTasks":
        """What several want, each task once: the first of each, then the second of each, …

        One that wants the same thing for several seeds has its turn for one of them at a time, so
        that two workers rarely compile the same program, and the next seed finds it compiled.
        """
        return cls(
            _in_turn([wanted.needed for wanted in each]),
            _in_turn([wanted.useful for wanted in each]),
        )


def _in_turn(lists: Sequence[Sequence[Task]]) -> list[Task]:
    turns = (task for turn in zip_longest(*lists) for task in turn if task is not None)
    return list({task.identity: task for task in turns}.values())


@dataclass(frozen=True)
class SweepState:
    """How far a sweep is: what is known, and what is being done."""

    known: Records
    running: int


def sweep(
    wanted: Callable[[Records], PendingTasks],
    store: Store,
    workers: Workers,
    *,
    fresh: bool = False,
    report: Callable[[SweepState], None] | None = None,
) -> dict[str, Record]:
    """Does tasks until nothing is needed any more.

    Args:
        wanted: says what is missing, given what is known. Nothing but that may change its mind.
        store: where results are looked for, and kept as soon as they are there.
        workers: who does the tasks.
        fresh: whether stored results are ignored, and replaced.
        report: told every second and after every result how far it is.

    Returns:
        All that is known in the end. A task that failed three times, or because of what it was
        asked, is there with its error; `Record.kept` says what was read and what was run.
    """
    current = _Sweep(store, workers, fresh)
    while (missing := current.missing(wanted)).needed:
        current.begin(missing)
        if report is not None:
            report(SweepState(current.known, len(current.running)))
        current.wait()
    return current.known


def read_stored(
    wanted: Callable[[Records], PendingTasks], store: Store, known: Records
) -> tuple[dict[str, Record], PendingTasks]:
    """What is known once a store has been asked for all that is wanted, and what is then missing.

    What is there may change what is wanted. Failures do not count as known: they are tried again.
    """
    known = dict(known)
    while True:
        asked = wanted(known)
        tasks = [task for task in (*asked.needed, *asked.useful) if task.experiment.stored]
        found = [store.get(task.identity) for task in tasks if task.identity not in known]
        news = {each.identity: each for each in found if each is not None and each.error is None}
        if not news:
            return known, asked
        known |= news


class _Sweep:
    """What is known and what is running."""

    def __init__(self, store: Store, workers: Workers, fresh: bool) -> None:
        self.store, self.workers, self.fresh = store, workers, fresh
        self.known: dict[str, Record] = {}
        self.running: dict[Future[Record], _Attempt] = {}

    def missing(self, wanted: Callable[[Records], PendingTasks]) -> PendingTasks:
        """What is wanted and not in the store."""
        if self.fresh:
            return wanted(self.known)
        self.known, missing = read_stored(wanted, self.store, self.known)
        return missing

    def begin(self, missing: PendingTasks) -> None:
        """Gives tasks to free workers, needed ones before those that may be needed."""
        running = {attempt.task.identity for attempt in self.running.values()}
        each = {task.identity: task for task in missing.needed}
        waiting = [task for identity, task in each.items() if identity not in running]
        while waiting and (self.workers.free() or self._make_room(missing)):
            task = min(waiting, key=self.workers.scheduling_cost)
            waiting.remove(task)
            running.add(task.identity)
            self._submit(_Attempt(task, 1))
        for task in missing.useful:
            if task.identity not in running and self.workers.free():
                running.add(task.identity)
                self._submit(_Attempt(task, 1))

    def _make_room(self, missing: PendingTasks) -> bool:
        """Ends a task that is not needed, where that can be done; those of no use at all first."""
        needed = {task.identity for task in missing.needed}
        useful = {task.identity for task in missing.useful}
        spare = [
            (attempt.task.identity in useful, -attempt.begun, future)
            for future, attempt in self.running.items()
            if attempt.task.identity not in needed and not future.done()
        ]
        if not spare:
            return False
        *_, future = min(spare, key=lambda entry: entry[:2])
        if self.workers.stop(future):
            del self.running[future]
        return self.workers.free() > 0

    def _submit(self, attempt: "_Attempt") -> None:
        self.running[self.workers.submit(attempt.task)] = attempt

    def wait(self) -> None:
        """Waits for a result, or a moment, and keeps what is there."""
        done, _ = wait(self.running, _SECONDS_BETWEEN_REPORTS, FIRST_COMPLETED)
        if not self.running:  # no worker has come yet
            time.sleep(_SECONDS_BETWEEN_REPORTS)
        for future in done:
            self._finish(future, self.running.pop(future))

    def _finish(self, future: Future[Record], attempt: "_Attempt") -> None:
        try:
            record = future.result()
        except (Exception, CancelledError, SystemExit) as error:
            self.workers.check()  # no fault of the task if nobody is there to do it
            if attempt.number < _ATTEMPTS and not isinstance(error, FactmemError):
                self._submit(_Attempt(attempt.task, attempt.number + 1))
                return
            record = failure_record(attempt.task, error, time.monotonic() - attempt.begun)
        if not attempt.task.experiment.stored:
            self.known[record.identity] = record
            return
        kept = self.store.put(record, replace=self.fresh and record.error is None)
        # Another process may have kept the same task first: then that is the result.
        found = record if self.fresh else kept
        self.known[record.identity] = replace(found, kept=found != record)


class _Attempt:
    """A task that is being done."""

    def __init__(self, task: Task, number: int) -> None:
        self.task, self.number, self.begun = task, number, time.monotonic()
