"""Where tasks are done: on the workers of a dask cluster."""

from concurrent.futures import Future
from typing import Any

from factmem.errors import FactmemError, visible
from factmem.runs.perform import perform
from factmem.runs.store import Record
from factmem.runs.task import Task
from factmem.runs.workers import Workers

__all__ = ["ClusterWorkers"]

_SECONDS_TO_CONNECT = 20


class ClusterWorkers(Workers):
    """The workers of a `dask.distributed` cluster.

    The scheduler repeats a task elsewhere when its worker dies. Workers may come and go.

    Args:
        address: of the scheduler, such as `tcp://host:8786` or `tls://host:8786`.

    Raises:
        FactmemError: distributed is not installed, or nobody answers there.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise FactmemError("a cluster needs dask: pip install 'factmem[cluster]'") from None
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
        threads: Any = self._client.nthreads()
        return max(0, sum(threads.values()) - len(self._running))

    def submit(self, task: Task) -> Future[Record]:
        """Gives a task to the scheduler."""
        future = self._executor.submit(perform, task)
        self._running.add(future)
        return future

    def stop(self, future: Future[Record]) -> bool:
        """Nothing: dask cannot end what a worker has begun, and would count it as free."""
        return False

    def close(self) -> None:
        """Lets the scheduler forget what is left, and leaves."""
        self._executor.shutdown(wait=False)
        self._client.close()
