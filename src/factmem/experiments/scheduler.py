"""Run many tasks: read results from the store, execute the missing tasks and store their results.

Which tasks are needed may depend on results, as in a search. So the caller passes a function from
the known records to the pending tasks. It is called again after every result, and resuming needs
nothing else: a sweep that was killed requests the same tasks and reads them from the store.
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

__all__ = ["PendingTasks", "Records", "SweepState", "read_stored", "sweep"]

_MAX_ATTEMPTS = 3
_REPORT_INTERVAL = 1.0
"""Seconds between two reports."""

Records = Mapping[str, Record]
"""Finished runs by the identity of their task."""


@dataclass(frozen=True)
class PendingTasks:
    """Tasks that are still to be executed.

    Args:
        needed: tasks without which the sweep cannot go on.
        speculative: tasks that may be needed, depending on the results of others; most likely
            first. Idle workers run them.
    """

    needed: Sequence[Task] = ()
    speculative: Sequence[Task] = ()

    @classmethod
    def interleave(cls, parts: Sequence["PendingTasks"]) -> "PendingTasks":
        """Combine the tasks of several parts, each once: the first of each, the second of each, …

        A part that needs the same task for several seeds then submits one seed at a time. Two
        workers rarely compile the same program, and the next seed finds it compiled.
        """
        return cls(
            _interleave([part.needed for part in parts]),
            _interleave([part.speculative for part in parts]),
        )


def _interleave(lists: Sequence[Sequence[Task]]) -> list[Task]:
    tasks = (task for row in zip_longest(*lists) for task in row if task is not None)
    return list({task.identity: task for task in tasks}.values())


@dataclass(frozen=True)
class SweepState:
    """The progress of a sweep: the known records and the number of running tasks."""

    known: Records
    running: int


def sweep(
    pending: Callable[[Records], PendingTasks],
    store: Store,
    workers: Workers,
    *,
    fresh: bool = False,
    report: Callable[[SweepState], None] | None = None,
) -> dict[str, Record]:
    """Execute tasks until none is needed.

    Args:
        pending: returns the missing tasks, given the known records. Must be a pure function of
            `known`.
        store: where results are read, and written as soon as they are known.
        workers: the processes that execute tasks.
        fresh: ignore stored results and replace them.
        report: called every second and after every result.

    Returns:
        All known records. A task that failed three times, or that raised a `FactmemError`, has a
        record with its error. `Record.from_store` tells whether a record was read or run.
    """
    state = _Sweep(store, workers, fresh)
    while (missing := state.missing(pending)).needed:
        state.start(missing)
        if report is not None:
            report(SweepState(state.known, len(state.running)))
        state.wait()
    return state.known


def read_stored(
    pending: Callable[[Records], PendingTasks], store: Store, known: Records
) -> tuple[dict[str, Record], PendingTasks]:
    """Read all pending tasks from a store; return the known records and what is still missing.

    A record may change which tasks are pending, so the store is queried until nothing is added.
    Failed runs do not count as known: they are tried again.
    """
    known = dict(known)
    while True:
        missing = pending(known)
        tasks = [task for task in (*missing.needed, *missing.speculative) if task.experiment.stored]
        records = [store.get(task.identity) for task in tasks if task.identity not in known]
        new = {r.identity: r for r in records if r is not None and r.error is None}
        if not new:
            return known, missing
        known |= new


class _Sweep:
    """The known records and the running tasks."""

    def __init__(self, store: Store, workers: Workers, fresh: bool) -> None:
        self.store, self.workers, self.fresh = store, workers, fresh
        self.known: dict[str, Record] = {}
        self.running: dict[Future[Record], _Attempt] = {}

    def missing(self, pending: Callable[[Records], PendingTasks]) -> PendingTasks:
        """Return the pending tasks that the store does not have."""
        if self.fresh:
            return pending(self.known)
        self.known, missing = read_stored(pending, self.store, self.known)
        return missing

    def start(self, missing: PendingTasks) -> None:
        """Submit tasks to free workers, needed tasks before useful ones."""
        running = {attempt.task.identity for attempt in self.running.values()}
        needed = {task.identity: task for task in missing.needed}
        waiting = [task for identity, task in needed.items() if identity not in running]
        while waiting and (self.workers.free() or self._free_worker(missing)):
            task = min(waiting, key=self.workers.scheduling_cost)
            waiting.remove(task)
            running.add(task.identity)
            self._submit(_Attempt(task, 1))
        for task in missing.speculative:
            if task.identity not in running and self.workers.free():
                running.add(task.identity)
                self._submit(_Attempt(task, 1))

    def _free_worker(self, missing: PendingTasks) -> bool:
        """Stop a task that is not needed, if possible; tasks that are not even useful first."""
        needed = {task.identity for task in missing.needed}
        useful = {task.identity for task in missing.speculative}
        candidates = [
            (attempt.task.identity in useful, -attempt.started, future)
            for future, attempt in self.running.items()
            if attempt.task.identity not in needed and not future.done()
        ]
        if not candidates:
            return False
        *_, future = min(candidates, key=lambda entry: entry[:2])
        if self.workers.stop(future):
            del self.running[future]
        return self.workers.free() > 0

    def _submit(self, attempt: "_Attempt") -> None:
        self.running[self.workers.submit(attempt.task)] = attempt

    def wait(self) -> None:
        """Wait for a result or for the next report, and store the results."""
        done, _ = wait(self.running, _REPORT_INTERVAL, FIRST_COMPLETED)
        if not self.running:  # a cluster may have no workers yet
            time.sleep(_REPORT_INTERVAL)
        for future in done:
            self._finish(future, self.running.pop(future))

    def _finish(self, future: Future[Record], attempt: "_Attempt") -> None:
        try:
            record = future.result()
        except (Exception, CancelledError, SystemExit) as error:
            self.workers.check()  # losing the cluster does not count as a failure of the task
            if attempt.number < _MAX_ATTEMPTS and not isinstance(error, FactmemError):
                self._submit(_Attempt(attempt.task, attempt.number + 1))
                return
            record = failure_record(attempt.task, error, time.monotonic() - attempt.started)
        if not attempt.task.experiment.stored:
            self.known[record.identity] = record
            return
        stored = self.store.put(record, replace=self.fresh and record.error is None)
        # Another process may have stored the same task first: then its result counts.
        result = record if self.fresh else stored
        self.known[record.identity] = replace(result, from_store=result != record)


class _Attempt:
    """A running task, and how often it has been tried."""

    def __init__(self, task: Task, number: int) -> None:
        self.task, self.number, self.started = task, number, time.monotonic()
