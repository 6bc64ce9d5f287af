"""Workers on this machine: one process per core.

Workers are spawned, not forked, because the threads of jax do not survive a fork. Each is pinned to
its core and computes in one thread. It holds one end of a pipe whose other end belongs to the
driver. When that closes, because the driver closes it or dies, the worker exits at once.
"""

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from factmem._core.errors import FactmemError
from factmem._core.threads import available_cores
from factmem.experiments.execute import execute_in_worker
from factmem.experiments.store import Record
from factmem.experiments.task import Task

__all__ = ["LocalWorkers", "Workers"]


class Workers(ABC):
    """Processes that execute tasks, on this machine or elsewhere."""

    @abstractmethod
    def free(self) -> int:
        """Return how many more tasks can be started now."""

    @abstractmethod
    def submit(self, task: Task) -> Future[Record]:
        """Start a task. Its future fails with the task's error, or if its worker dies."""

    @abstractmethod
    def stop(self, future: Future[Record]) -> bool:
        """Stop a task that is no longer needed; return False if that is impossible."""

    @abstractmethod
    def close(self) -> None:
        """Stop all tasks and workers at once."""

    def scheduling_cost(self, task: Task) -> int:
        """Return how costly it is for a free worker to start this task; 0 is the cheapest."""
        return 0

    def check(self) -> None:  # noqa: B027
        """Raise FactmemError if the workers of a cluster can no longer be reached."""

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalWorkers(Workers):
    """Processes on this machine, each pinned to its own core.

    Args:
        count: number of processes; defaults to the number of cores.

    Raises:
        FactmemError: `count` is below 1.
    """

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise FactmemError(f"workers must be at least 1, got {count}")
        places = available_cores()
        count = len(places) if count is None else count
        self._cores = [places[number % len(places)] for number in range(count)]
        self._workers: dict[int, _Worker] = {}
        self._busy: dict[Future[Record], int] = {}
        self._compiled: dict[int, set[str]] = {}

    def free(self) -> int:
        """Return how many more tasks can be started now."""
        self._busy = {future: slot for future, slot in self._busy.items() if not future.done()}
        return len(self._cores) - len(self._busy)

    def submit(self, task: Task) -> Future[Record]:
        """Start a task on an idle core."""
        assert self.free(), "there is a free worker"
        slot = min(
            self._idle(), key=lambda slot: task.compiled_shape not in self._compiled.get(slot, ())
        )
        if slot not in self._workers:
            self._compiled[slot] = set()
            self._workers[slot] = _Worker.start(self._cores[slot])
        try:
            with _interrupts_blocked():  # the process is spawned here
                future = self._workers[slot].executor.submit(execute_in_worker, task)
        except BrokenProcessPool:  # its process died
            self._workers.pop(slot).stop()
            self._compiled.pop(slot, None)
            return self.submit(task)
        self._busy[future] = slot
        self._compiled[slot].add(task.compiled_shape)
        return future

    def scheduling_cost(self, task: Task) -> int:
        """Prefer tasks whose programs a free worker has compiled: compiling takes long.

        Returns:
            0 if an idle worker has compiled the programs, 1 if no worker has, 2 if only busy
            workers have.
        """
        compiled_by = {
            slot for slot, shapes in self._compiled.items() if task.compiled_shape in shapes
        }
        if not compiled_by:
            return 1
        return 0 if compiled_by & set(self._idle()) else 2

    def _idle(self) -> list[int]:
        return sorted(set(range(len(self._cores))) - set(self._busy.values()))

    def stop(self, future: Future[Record]) -> bool:
        """Stop the worker that runs this task; a new one is started when needed."""
        slot = self._busy.pop(future, None)
        if slot is not None:
            self._workers.pop(slot).stop()
            self._compiled.pop(slot, None)
        return True

    def close(self) -> None:
        """Stop all workers at once."""
        for worker in self._workers.values():
            worker.stop()
        self._workers, self._busy, self._compiled = {}, {}, {}


@dataclass(frozen=True)
class _Worker:
    """One process, and the pipe that ends it when closed."""

    executor: ProcessPoolExecutor
    lifeline: Any
    """The driver's end of the pipe."""

    @classmethod
    def start(cls, core: int) -> "_Worker":
        context = multiprocessing.get_context("spawn")
        worker_end, driver_end = context.Pipe(duplex=False)
        executor = ProcessPoolExecutor(
            1, mp_context=context, initializer=_initialize, initargs=(core, worker_end)
        )
        return cls(executor, driver_end)

    def stop(self) -> None:
        """End the process at once."""
        self.lifeline.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C, and block it in processes that are spawned meanwhile.

    A terminal sends Ctrl-C to all its processes; only the driver handles it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _initialize(core: int, lifeline: Any) -> None:
    """Set up a worker before jax is loaded."""
    # For platforms on which signals cannot be blocked at the start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(lifeline,), daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    # On an accelerator the first worker would reserve all memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _exit_with(lifeline: Any) -> None:
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
