"""Where tasks are done: in processes of this machine, one for each core.

A worker is spawned, never forked, for jax has threads that do not survive a fork. It is pinned to
its core and computes in one thread. It holds one end of a pipe whose other end only the driver has:
when that closes, because the driver says so or is gone for whatever reason, the worker ends at
once, whatever it is doing.
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
from factmem._core.threads import cores
from factmem.experiments.execute import execute_in_worker
from factmem.experiments.store import Record
from factmem.experiments.task import Task

__all__ = ["LocalWorkers", "Workers"]


class Workers(ABC):
    """Processes that do tasks, wherever they are."""

    @abstractmethod
    def free(self) -> int:
        """How many more tasks could be begun now."""

    @abstractmethod
    def submit(self, task: Task) -> Future[Record]:
        """Begins a task. Its future fails with the task's error, or when a worker dies."""

    @abstractmethod
    def stop(self, future: Future[Record]) -> bool:
        """Ends a task that nobody needs any more; False if that cannot be done here."""

    @abstractmethod
    def close(self) -> None:
        """Ends all tasks and workers, now."""

    def scheduling_cost(self, task: Task) -> int:
        """How little it suits a free worker to begin this task: those of 0 come first."""
        return 0

    def check(self) -> None:  # noqa: B027
        """Raises FactmemError if they cannot be reached any more, as those of a cluster may."""

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalWorkers(Workers):
    """Processes of this machine, each on a core of its own.

    Args:
        count: how many; as many as there are cores if left out.

    Raises:
        FactmemError: fewer than one.
    """

    def __init__(self, count: int | None = None) -> None:
        if count is not None and count < 1:
            raise FactmemError(f"there is at least one worker, not {count}")
        places = cores()
        count = len(places) if count is None else count
        self._cores = [places[number % len(places)] for number in range(count)]
        self._workers: dict[int, _Worker] = {}
        self._busy: dict[Future[Record], int] = {}
        self._done: dict[int, set[str]] = {}

    def free(self) -> int:
        """How many more tasks could be begun now."""
        self._busy = {future: slot for future, slot in self._busy.items() if not future.done()}
        return len(self._cores) - len(self._busy)

    def submit(self, task: Task) -> Future[Record]:
        """Begins a task on a core that has none."""
        assert self.free(), "no more tasks than workers"
        slot = min(self._idle(), key=lambda slot: task.shape not in self._done.get(slot, ()))
        if slot not in self._workers:
            self._done[slot] = set()
            self._workers[slot] = _Worker.started(self._cores[slot])
        try:
            with _interrupts_held():  # this is where the process is spawned
                future = self._workers[slot].executor.submit(execute_in_worker, task)
        except BrokenProcessPool:  # its process died
            self._workers.pop(slot).end()
            self._done.pop(slot, None)
            return self.submit(task)
        self._busy[future] = slot
        self._done[slot].add(task.shape)
        return future

    def scheduling_cost(self, task: Task) -> int:
        """Tracing and compiling take longer than many tasks: 0 for what a free worker has done the
        like of, 1 for what none has, 2 for what is better left to those that are busy."""
        familiar = {slot for slot, shapes in self._done.items() if task.shape in shapes}
        if not familiar:
            return 1
        return 0 if familiar & set(self._idle()) else 2

    def _idle(self) -> list[int]:
        return sorted(set(range(len(self._cores))) - set(self._busy.values()))

    def stop(self, future: Future[Record]) -> bool:
        """Ends the worker that does this; another one takes its place when it is needed."""
        slot = self._busy.pop(future, None)
        if slot is not None:
            self._workers.pop(slot).end()
            self._done.pop(slot, None)
        return True

    def close(self) -> None:
        """Ends all workers, now."""
        for worker in self._workers.values():
            worker.end()
        self._workers, self._busy, self._done = {}, {}, {}


@dataclass(frozen=True)
class _Worker:
    """One process, and the pipe that it lives as long as."""

    executor: ProcessPoolExecutor
    lifeline: Any
    """Our end of a pipe."""

    @classmethod
    def started(cls, core: int) -> "_Worker":
        spawning = multiprocessing.get_context("spawn")
        theirs, ours = spawning.Pipe(duplex=False)
        executor = ProcessPoolExecutor(
            1, mp_context=spawning, initializer=_begin, initargs=(core, theirs)
        )
        return cls(executor, ours)

    def end(self) -> None:
        """Ends the process, whatever it does."""
        self.lifeline.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Lets Ctrl-C wait, and lets a process that is spawned meanwhile never hear it.

    Ctrl-C reaches every process of a terminal; the driver alone decides what it means.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would unblock the signal again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(core: int, lifeline: Any) -> None:
    """What a worker does first, before anything loads jax."""
    # Where a signal cannot be held back from the start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    # On an accelerator the first worker would take its whole memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _end_with(lifeline: Any) -> None:
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
