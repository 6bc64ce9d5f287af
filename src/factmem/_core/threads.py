"""How many threads jax computes with: results depend on it in their last bits."""

import os
import sys

from factmem._core.errors import FactmemError

__all__ = ["cores", "one_thread", "threads_used"]

_NO_THREADS = "--xla_cpu_multi_thread_eigen=false"


def cores() -> list[int]:
    """The cores that this process may use, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def one_thread() -> None:
    """Asks jax, through its environment, to compute in one thread.

    Raises:
        FactmemError: jax has been loaded, and does not listen any more.
    """
    if "jax" in sys.modules:
        raise FactmemError("one thread must be asked for before jax is loaded: use --deterministic")
    flags = os.environ.get("XLA_FLAGS", "")
    if _NO_THREADS not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_NO_THREADS}".strip()
    # The number of threads that jax's pool on a CPU has.
    os.environ["NPROC"] = os.environ["PJRT_NPROC"] = "1"


def threads_used() -> int:
    """The threads that jax computes with on a CPU, as far as the environment says."""
    return 1 if _NO_THREADS in os.environ.get("XLA_FLAGS", "") else len(cores())
