"""Doing one task, on whatever machine. Importing this loads no jax."""

import platform
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from factmem._core.canonical_json import plain
from factmem._core.errors import FactmemError, visible
from factmem._core.threads import one_thread, threads_used
from factmem.experiments.compilation_cache import Memory
from factmem.experiments.store import Record
from factmem.experiments.task import Task

__all__ = ["failure_record", "execute", "execute_in_worker"]

_LONGEST_ERROR = 1000
_MEMORY = Memory()
_LIBRARIES = ("factmem", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")


def execute(task: Task) -> Record:
    """Measures, and gives the record of it.

    With one thread, unless jax runs already: then results do not depend on how many cores a
    machine has, and a worker for each core uses them better than threads do.
    """
    with suppress(FactmemError):
        one_thread()
    start = time.monotonic()
    metrics = task.experiment.function(**task.config)
    return _record(task, time.monotonic() - start, metrics=plain(metrics))


def execute_in_worker(task: Task) -> Record:
    """As `execute`, in a process that does nothing else, and must not grow without end."""
    record = execute(task)
    _MEMORY.trim()
    return record


def failure_record(task: Task, error: BaseException, seconds: float) -> Record:
    """The record of a task that could not be done, by whoever waited for it."""
    told = visible(f"{type(error).__name__}: {error}".strip(), _LONGEST_ERROR)
    return _record(task, seconds, error=told)


def _record(
    task: Task,
    seconds: float,
    metrics: Mapping[str, Any] | None = None,
    error: str | None = None,
) -> Record:
    return Record(
        identity=task.identity,
        measure=task.experiment.name,
        version=task.experiment.version,
        config=plain(task.config),
        seed=task.seed,
        metrics=metrics,
        error=error,
        seconds=seconds,
        versions=_versions(),
        threads=threads_used(),
        host=socket.gethostname(),
        finished=datetime.now(UTC).isoformat(timespec="microseconds"),
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
