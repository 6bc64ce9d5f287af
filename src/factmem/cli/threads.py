"""One thread, so that the same command gives the same numbers to the last bit."""

import os
import sys

from factmem.errors import FactmemError

__all__ = ["one_thread"]


def one_thread() -> None:
    """Asks jax, through its environment, to compute in one thread.

    Raises:
        FactmemError: jax has been loaded, and does not listen any more.
    """
    if "jax" in sys.modules:
        raise FactmemError("--deterministic must be set before jax is loaded: use the command line")
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    # The number of threads that jax's pool on a CPU has.
    os.environ["NPROC"] = os.environ["PJRT_NPROC"] = "1"
