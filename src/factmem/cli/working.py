"""The flags that say who measures: processes of this machine, or a cluster."""

from typing import TYPE_CHECKING

from factmem._core.errors import FactmemError
from factmem.cli.checks import check_positive

if TYPE_CHECKING:
    from factmem.experiments import Workers

__all__ = ["check_workers", "workers_of"]


def check_workers(workers: int | None, cluster: str | None) -> None:
    """Raises FactmemError unless at most one of them is given, and can be meant."""
    check_positive(workers=workers)
    if cluster is not None:
        from factmem.experiments.cluster import check_address

        check_address(cluster)
    if cluster is not None and workers is not None:
        raise FactmemError("--workers are on this machine, --cluster has its own: give one of them")


def workers_of(workers: int | None, cluster: str | None) -> "Workers":
    """Those that were asked for."""
    from factmem.experiments import ClusterWorkers, LocalWorkers

    return LocalWorkers(workers) if cluster is None else ClusterWorkers(cluster)
