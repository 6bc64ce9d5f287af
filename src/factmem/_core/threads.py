"""The number of threads that jax uses. Results depend on it in their last bits."""

import os
import sys

from factmem._core.errors import FactmemError

__all__ = ["available_cores", "thread_count", "use_one_thread"]

_SINGLE_THREAD_FLAG = "--xla_cpu_multi_thread_eigen=false"


def available_cores() -> list[int]:
    """Return the indices of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def use_one_thread() -> None:
    """Set the environment variables that make jax compute in one thread.

    Raises:
        FactmemError: jax is already loaded and ignores these variables.
    """
    if "jax" in sys.modules:
        raise FactmemError(
            "jax is already loaded, so its number of threads cannot be changed; start a new process"
        )
    flags = os.environ.get("XLA_FLAGS", "")
    if _SINGLE_THREAD_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_SINGLE_THREAD_FLAG}".strip()
    # The size of jax's thread pool on a CPU.
    os.environ["NPROC"] = os.environ["PJRT_NPROC"] = "1"


def thread_count() -> int:
    """Return the number of threads that jax uses on a CPU, according to the environment."""
    return 1 if _SINGLE_THREAD_FLAG in os.environ.get("XLA_FLAGS", "") else len(available_cores())
