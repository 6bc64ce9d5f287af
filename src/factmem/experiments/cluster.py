"""Where tasks are done: on the workers of a dask cluster."""

import re
from concurrent.futures import CancelledError, Future
from typing import Any

from factmem._core.errors import FactmemError, visible
from factmem.experiments.execute import execute_in_worker
from factmem.experiments.store import Record
from factmem.experiments.task import Task
from factmem.experiments.workers import Workers

__all__ = ["ClusterWorkers", "check_address"]

_SECONDS_TO_CONNECT = 10


def check_address(address: str) -> None:
    """Raises FactmemError unless this may be the address of a scheduler."""
    # What has no scheme would make dask start a cluster of its own.
    found = re.fullmatch(r"(tcp|tls)://([\w-]+(\.[\w-]+)*|\[[\da-fA-F:.]+\]):(\d{1,5})", address)
    if found is None or not 1 <= int(found[4]) < 2**16:
        raise FactmemError(
            f"the address of a dask scheduler is like tcp://host:8786, not '{visible(address)}'"
        )


class ClusterWorkers(Workers):
    """The workers of a `dask.distributed` cluster.

    The scheduler repeats a task elsewhere when its worker dies. Workers may come and go.

    Args:
        address: of the scheduler, such as `tcp://host:8786` or `tls://host:8786`.

    Raises:
        FactmemError: no address, distributed is not installed, or nobody answers there.
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
                "client's (docs/runs.md)"
            )
        try:
            self._client = Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise FactmemError(
                f"no dask scheduler answers at '{visible(address)}': {visible(str(error))}"
            ) from None
        self._executor = self._client.get_executor(pure=False)
        self._running: set[Future[Record]] = set()

    def free(self) -> int:
        """How many more tasks could be begun now."""
        self._running = {future for future in self._running if not future.done()}
        return max(0, self._threads() - len(self._running))

    def check(self) -> None:
        """Raises FactmemError if the scheduler is gone."""
        self._threads()

    def _threads(self) -> int:
        """That the cluster has at the moment."""
        try:
            threads: Any = self._client.nthreads()
        except (OSError, RuntimeError, CancelledError):
            raise FactmemError(
                "the cluster is gone; what was finished is kept: start again to go on"
            ) from None
        return sum(threads.values())

    def submit(self, task: Task) -> Future[Record]:
        """Gives a task to the scheduler."""
        future = self._executor.submit(execute_in_worker, task)
        self._running.add(future)
        return future

    def stop(self, future: Future[Record]) -> bool:
        """Nothing: dask cannot end what a worker has begun, and would count it as free."""
        return False

    def close(self) -> None:
        """Lets the scheduler forget what is left, and leaves."""
        self._executor.shutdown(wait=False)
        self._client.close()
