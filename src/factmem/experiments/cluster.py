"""Workers of a dask cluster."""

import re
from concurrent.futures import CancelledError, Future
from typing import Any

from factmem._core.errors import FactmemError, printable
from factmem.experiments.execute import execute_in_worker
from factmem.experiments.store import Record
from factmem.experiments.task import Task
from factmem.experiments.workers import Workers

__all__ = ["ClusterWorkers", "check_address"]

_CONNECT_TIMEOUT = 10


def check_address(address: str) -> None:
    """Raise FactmemError unless this can be the address of a scheduler."""
    # Without a scheme dask would start a cluster of its own.
    match = re.fullmatch(r"(tcp|tls)://([\w-]+(\.[\w-]+)*|\[[\da-fA-F:.]+\]):(\d{1,5})", address)
    if match is None or not 1 <= int(match[4]) < 2**16:
        raise FactmemError(
            "the address of a dask scheduler must look like tcp://host:8786, got "
            f"'{printable(address)}'"
        )


class ClusterWorkers(Workers):
    """The workers of a `dask.distributed` cluster.

    If a worker dies, the scheduler runs its task on another one. Workers may join and leave.

    Args:
        address: the scheduler, such as `tcp://host:8786` or `tls://host:8786`.

    Raises:
        FactmemError: the address is invalid, dask is not installed, or no scheduler answers.
    """

    def __init__(self, address: str) -> None:
        check_address(address)
        try:
            from distributed import Client, Security
        except ImportError:
            raise FactmemError("a cluster needs dask: pip install 'factmem[cluster]'") from None
        if address.startswith("tls:") and not Security().get_connection_args("client").get(
            "ssl_context"
        ):
            raise FactmemError(
                "tls:// needs certificates: set DASK_DISTRIBUTED__COMM__TLS__CA_FILE and the "
                "client certificate (docs/runs.md)"
            )
        try:
            self._client = Client(address, timeout=_CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise FactmemError(
                f"no dask scheduler answers at '{printable(address)}': {printable(str(error))}"
            ) from None
        self._executor = self._client.get_executor(pure=False)
        self._running: set[Future[Record]] = set()

    def free(self) -> int:
        """Return how many more tasks can be started now."""
        self._running = {future for future in self._running if not future.done()}
        return max(0, self._threads() - len(self._running))

    def check(self) -> None:
        """Raise FactmemError if the scheduler cannot be reached."""
        self._threads()

    def _threads(self) -> int:
        """Return the current number of threads of the cluster."""
        try:
            threads: Any = self._client.nthreads()
        except (OSError, RuntimeError, CancelledError):
            raise FactmemError(
                "lost the connection to the cluster; finished runs are stored: run again to resume"
            ) from None
        return sum(threads.values())

    def submit(self, task: Task) -> Future[Record]:
        """Submit a task to the scheduler."""
        future = self._executor.submit(execute_in_worker, task)
        self._running.add(future)
        return future

    def stop(self, future: Future[Record]) -> bool:
        """Do nothing: dask cannot stop a running task and would count its worker as free."""
        return False

    def close(self) -> None:
        """Cancel the remaining tasks and disconnect."""
        self._executor.shutdown(wait=False)
        self._client.close()
