"""Sweeps on a real dask cluster that loses a worker or its scheduler."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.experiments.sample_tasks import (
    FAIL,
    SEEDS,
    SLEEP,
    brackets,
    pending_among,
    read_log,
    sample_problems,
)
from tests.experiments.test_scheduler import stored_tasks

from factmem._core.errors import FactmemError
from factmem.cli import main
from factmem.experiments import (
    ClusterWorkers,
    LocalWorkers,
    Store,
    Task,
    cluster,
    find_capacities,
    sweep,
)
from factmem.experiments.cluster import check_address

ROOT = Path(__file__).parents[2]


@contextmanager
def dask_process(*arguments):
    """Run a dask process that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Cluster:
    """A scheduler on the loopback interface and its workers."""

    def __init__(self, processes, folder):
        self.processes, self.folder = processes, folder
        file = folder / "scheduler.json"
        self.scheduler = processes.enter_context(
            dask_process("scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard",
                         "--scheduler-file", file)
        )  # fmt: skip
        while not file.exists() or not file.read_text().endswith("}"):
            assert self.scheduler.poll() is None
            time.sleep(0.02)
        self.address = json.loads(file.read_text())["address"]

    def add_worker(self):
        return self.processes.enter_context(
            dask_process("worker", self.address, "--no-nanny", "--nthreads", 1, "--no-dashboard",
                         "--local-directory", self.folder)
        )  # fmt: skip


def wait_for_workers(workers, count):
    while workers.free() < count:
        time.sleep(0.02)


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory):
    """One cluster with a worker for all tests that do not kill the scheduler."""
    with ExitStack() as processes:
        shared = Cluster(processes, tmp_path_factory.mktemp("cluster"))
        shared.add_worker()
        yield shared


def test_a_worker_that_is_killed_during_a_sweep_changes_no_result(shared_cluster, tmp_path):
    victim, killed = shared_cluster.add_worker(), []
    with Store(tmp_path / "local.sqlite") as store, LocalWorkers(2) as workers:
        problems = sample_problems(tmp_path / "local")
        undisturbed = brackets(find_capacities(problems, SEEDS, store, workers))

    def report(progress):
        started = [entry for entry in read_log(tmp_path / "log") if entry["pid"] == victim.pid]
        last = [(entry["dim"], entry["size"], entry["seed"]) for entry in started[-1:]]
        # During the sweep, and with a task started whose result is not stored yet.
        unfinished = set(last) - stored_tasks(tmp_path / "runs.sqlite")
        if not killed and progress.done >= 10 and unfinished:
            victim.kill()
            killed.append(victim.pid)

    problems = sample_problems(tmp_path / "log", seconds=0.05)
    with (
        Store(tmp_path / "runs.sqlite") as store,
        ClusterWorkers(shared_cluster.address) as workers,
    ):
        wait_for_workers(workers, 2)
        capacities = find_capacities(problems, SEEDS, store, workers, report=report)
        assert all(record.error is None for record in store.records())
    assert killed
    assert brackets(capacities) == undisturbed
    assert not any(
        record.from_store
        for capacity in capacities
        for seed in capacity.seeds
        for record in seed.probes.values()
    )


def test_the_capacity_command_gives_the_same_result_on_a_cluster(shared_cluster, tmp_path, capsys):
    results = []
    for option in (("--cluster", shared_cluster.address), ("--workers", "1")):
        store = str(tmp_path / option[0])
        assert main(["capacity", "linear", "--dim", "3", "--json", "--store", store, *option]) == 0
        results.append(json.loads(capsys.readouterr().out))
    on_cluster, local = (
        [(probe["size"], probe["run"]) for probe in result["seeds"][0]["probes"]]
        for result in results
    )
    assert on_cluster == local
    assert results[0]["min_relative_margin"] == results[1]["min_relative_margin"]
    with Store(tmp_path / "--cluster") as store:
        assert {record.threads for record in store.records()} == {1}


def test_a_failing_task_is_recorded(shared_cluster, tmp_path):
    bad = Task(FAIL, {"kind": "error", "seed": 0})
    with (
        Store(tmp_path / "runs.sqlite") as store,
        ClusterWorkers(shared_cluster.address) as workers,
    ):
        known = sweep(pending_among([bad]), store, workers)
    assert known[bad.identity].error == "ZeroDivisionError: deep inside"


def test_a_lost_scheduler_is_not_recorded_as_a_failed_task(tmp_path):
    task = Task(SLEEP, {"seconds": 600})
    with ExitStack() as processes:
        own = Cluster(processes, tmp_path)
        own.add_worker()
        with Store(tmp_path / "runs.sqlite") as store, ClusterWorkers(own.address) as workers:
            wait_for_workers(workers, 1)
            with pytest.raises(FactmemError, match="lost the connection to the cluster"):
                sweep(pending_among([task]), store, workers, report=lambda _: own.scheduler.kill())
            assert store.records() == []


def test_rejects_an_address_where_no_scheduler_answers(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_TIMEOUT", 0.2)
    with pytest.raises(FactmemError, match="no dask scheduler answers at 'tcp://127"):
        ClusterWorkers("tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    "address",
    [
        *("", "nonsense", "http://127.0.0.1:1", "127.0.0.1:1", "tcp://", "tcp://127.0.0.1"),
        *("tcp://127.0.0.1:x", "tcp://a..b:1", "tcp://[::1:5", "ucx://h:1", "tcp://h:1/path"),
        *("tcp://h:0", "tcp://h:65536", "tcp://h:-1", "tcp://h h:1"),
    ],
)
def test_rejects_invalid_addresses(address):
    with pytest.raises(FactmemError, match="must look like tcp://host:8786, got"):
        ClusterWorkers(address)


@pytest.mark.parametrize(
    "address",
    ["tcp://host:8786", "tls://10.0.0.1:1", "tcp://my-host.example_1:65535", "tcp://[::1]:5"],
)
def test_accepts_valid_addresses(address):
    check_address(address)


def test_tls_needs_certificates():
    with pytest.raises(FactmemError, match="tls:// needs certificates"):
        ClusterWorkers("tls://127.0.0.1:1")
