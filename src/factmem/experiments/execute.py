"""Execute one task, on any machine. Importing this module does not load jax."""

import platform
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from factmem._core.canonical_json import to_json_data
from factmem._core.errors import FactmemError, printable
from factmem._core.threads import thread_count, use_one_thread
from factmem.experiments.compilation_cache import CompilationCacheTrimmer
from factmem.experiments.store import Record
from factmem.experiments.task import Task

__all__ = ["execute", "execute_in_worker", "failure_record"]

_MAX_ERROR_LENGTH = 1000
_TRIMMER = CompilationCacheTrimmer()
_LIBRARIES = ("factmem", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")


def execute(task: Task) -> Record:
    """Run a task and return its record.

    Uses one thread unless jax is already running. Results then do not depend on the number of
    cores, and one worker per core uses the cores better than threads do.
    """
    with suppress(FactmemError):
        use_one_thread()
    start = time.monotonic()
    metrics = task.experiment.function(**task.config)
    return _record(task, time.monotonic() - start, metrics=to_json_data(metrics))


def execute_in_worker(task: Task) -> Record:
    """Run a task as `execute` does, in a process whose memory is kept bounded."""
    record = execute(task)
    _TRIMMER.trim()
    return record


def failure_record(task: Task, error: BaseException, seconds: float) -> Record:
    """Return the record of a task that raised an error or whose worker died."""
    message = printable(f"{type(error).__name__}: {error}".strip(), _MAX_ERROR_LENGTH)
    return _record(task, seconds, error=message)


def _record(
    task: Task,
    seconds: float,
    metrics: Mapping[str, Any] | None = None,
    error: str | None = None,
) -> Record:
    return Record(
        identity=task.identity,
        experiment=task.experiment.name,
        version=task.experiment.version,
        config=to_json_data(task.config),
        seed=task.seed,
        metrics=metrics,
        error=error,
        seconds=seconds,
        versions=dict(_library_versions()),
        threads=thread_count(),
        host=socket.gethostname(),
        finished=datetime.now(UTC).isoformat(timespec="microseconds"),
    )


@cache  # reading them takes longer than a cheap task
def _library_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
