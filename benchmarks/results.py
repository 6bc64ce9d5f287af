"""What benchmarks share: options, the run store, and searches whose steps are stored runs."""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factmem.experiments import (
    LocalWorkers,
    Measurement,
    PendingTasks,
    Progress,
    Record,
    Records,
    Store,
    Task,
    Workers,
    measure,
)
from factmem.experiments.execute import execute_in_worker
from factmem.experiments.measurement import complete_records, stored_records

STORE = Path(__file__).parent.parent / "results" / "runs.sqlite"

Metrics = Mapping[str, Any]


def option_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks with stored runs have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--store", type=Path, default=STORE, help="the run store (SQLite)")
    parser.add_argument("--stored-only", action="store_true", help="run nothing that is missing")
    parser.add_argument(
        "--smallest",
        action="store_true",
        help="run the smallest case anew and print it; nothing is stored or written",
    )
    return parser


class Results:
    """Results of measurements: read from the run store, or measured if they are missing.

    Args:
        store: the run store.
        workers: the processes that execute tasks; None if nothing is to be executed.
        print_metrics: print the metrics of every run in full, as JSON.
    """

    def __init__(
        self, store: Store, workers: Workers | None = None, print_metrics: bool = False
    ) -> None:
        self.store, self.workers, self.print_metrics = store, workers, print_metrics

    def get(self, measurement: Measurement) -> Any:
        """Return the result of a measurement, or None if a run is missing and none may start."""
        if self.workers is None:
            known = complete_records(measurement, self.store)
            return None if known is None else measurement.result(known)
        result = measure(measurement, self.store, self.workers, report=_Printer())
        if self.print_metrics:
            for record in stored_records(measurement, self.store).values():
                run = {"experiment": record.experiment, "seed": record.seed}
                print(json.dumps({**run, "metrics": record.metrics}), flush=True)
        return result


@contextmanager
def open_results(
    options: argparse.Namespace, start_workers: Callable[[], Workers] = LocalWorkers
) -> Iterator[Results]:
    """Open the store and start workers, as the options of `option_parser` say."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite" if options.smallest else options.store
        path.parent.mkdir(parents=True, exist_ok=True)
        with Store(path) as store:
            if options.stored_only:
                yield Results(store)
                return
            with start_workers() as workers:
                yield Results(store, workers, print_metrics=options.smallest)


class _Printer:
    """Prints the progress after every run."""

    done = 0

    def __call__(self, progress: Progress) -> None:
        if progress.done != self.done:
            self.done = progress.done
            print(f"  {progress.done} runs done, {progress.remaining} remaining", flush=True)


class ThisProcess(Workers):
    """Executes tasks one after another in this process, on all cores.

    Results of long fits depend on the number of threads in their last bits, and so may verdicts.
    """

    def free(self) -> int:
        """Return 1: a submitted task is finished at once."""
        return 1

    def submit(self, task: Task) -> Future[Record]:
        """Execute a task."""
        import jax  # noqa: F401  once jax is loaded, tasks keep its number of threads

        future: Future[Record] = Future()
        try:
            future.set_result(execute_in_worker(task))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self, future: Future[Record]) -> bool:
        """Return False: nothing is running."""
        return False

    def close(self) -> None:
        """Do nothing."""


class _MissingRunError(Exception):
    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task


@dataclass(frozen=True)
class SequentialTasks:
    """A computation that needs the results of tasks one after another, such as a search.

    It is started again after every run, and finds the results of earlier tasks.

    Args:
        compute: called with a function from a task to its metrics; must be deterministic.
    """

    compute: Callable[[Callable[[Task], Metrics]], Any]

    def pending(self, known: Records) -> PendingTasks:
        """Return the first task without a record."""
        try:
            self.result(known)
        except _MissingRunError as missing:
            return PendingTasks([missing.task])
        return PendingTasks()

    def result(self, known: Records) -> Any:
        """Return what `compute` returns."""
        return self.compute(lambda task: _metrics(task, known))

    def used_tasks(self, known: Records) -> list[Task]:
        """Return the tasks that `compute` has asked for."""
        tasks: dict[str, Task] = {}

        def look_up(task: Task) -> Metrics:
            tasks[task.identity] = task
            return _metrics(task, known)

        with suppress(_MissingRunError):
            self.compute(look_up)
        return list(tasks.values())

    def remaining(self, known: Records) -> int:
        """Return 1 while the computation is not finished: its length is not known."""
        return len(self.pending(known).needed)


def _metrics(task: Task, known: Records) -> Metrics:
    if task.identity not in known:
        raise _MissingRunError(task)
    record = known[task.identity]
    if record.metrics is None:
        raise RuntimeError(f"{task.experiment.name} failed: {record.error}")
    return record.metrics
