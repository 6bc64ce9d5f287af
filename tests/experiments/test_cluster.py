"""The same sweep on a real dask cluster, which loses a worker, or its scheduler."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.experiments import cheap
from tests.experiments.test_scheduler import stored
from tests.experiments.test_workers import SLEEP

from factmem._core.errors import FactmemError
from factmem.cli import main
from factmem.experiments import (
    ClusterWorkers,
    LocalWorkers,
    PendingTasks,
    Store,
    Task,
    find_capacities,
    sweep,
)
from factmem.experiments.cluster import check_address

ROOT = Path(__file__).parents[2]


@contextmanager
def dask(*arguments):
    """A process of dask that ends with the block."""
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
    """A scheduler on loopback and its workers."""

    def __init__(self, processes, folder):
        self.file = folder / "scheduler.json"
        self.scheduler = processes.enter_context(
            dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard",
                 "--scheduler-file", self.file)
        )  # fmt: skip
        while not self.file.exists() or not self.file.read_text().endswith("}"):
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]
        self.workers = [
            processes.enter_context(
                dask("worker", self.address, "--no-nanny", "--nthreads", 1, "--no-dashboard",
                     "--local-directory", folder, "--name", number)
            )
            for number in range(2)
        ]  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    with ExitStack() as processes:
        found = Cluster(processes, tmp_path)
        with ClusterWorkers(found.address) as workers:
            while workers.free() < 2:
                time.sleep(0.05)
        yield found


def questions(folder, name, seconds):
    return [cheap.CheapQuestion(dim, str(folder / name), seconds) for dim in cheap.DIMS]


def test_a_worker_that_is_killed_in_mid_sweep_changes_nothing(cluster, tmp_path):
    with Store(tmp_path / "local.sqlite") as store, LocalWorkers(2) as workers:
        asked = questions(tmp_path, "local", 0.0)
        undisturbed = cheap.table(find_capacities(asked, cheap.SEEDS, store, workers))
    victim, killed = cluster.workers[0], []

    def report(progress):
        begun = [entry for entry in cheap.told(tmp_path / "log") if entry["pid"] == victim.pid]
        last = [(entry["dim"], entry["size"], entry["seed"]) for entry in begun[-1:]]
        # In mid-sweep, and with something begun that the store does not have yet.
        if not killed and progress.done >= 10 and set(last) - stored(tmp_path / "runs.sqlite"):
            victim.kill()
            killed.append(victim.pid)

    asked = questions(tmp_path, "log", 0.05)
    with Store(tmp_path / "runs.sqlite") as store, ClusterWorkers(cluster.address) as workers:
        found = find_capacities(asked, cheap.SEEDS, store, workers, report=report)
        assert all(record.error is None for record in store.records())
    assert killed
    assert cheap.table(found) == undisturbed
    assert not any(
        record.from_store
        for capacity in found
        for seed in capacity.seeds
        for record in seed.probes.values()
    )


def test_the_command_finds_the_same_there_as_here(cluster, tmp_path, capsys):
    answers = []
    for where in (("--cluster", cluster.address), ("--workers", "2")):
        store = str(tmp_path / where[0])
        assert main(["capacity", "linear", "--dim", "4", "--json", "--store", store, *where]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    there, here = ([(p["size"], p["run"]) for p in a["seeds"][0]["probes"]] for a in answers)
    assert there == here
    assert answers[0]["relative_margin"] == answers[1]["relative_margin"]
    with Store(tmp_path / "--cluster") as store:
        assert {record.threads for record in store.records()} == {1}


def lacking(task):
    return lambda known: PendingTasks([] if task.identity in known else [task])


def test_a_task_that_keeps_failing_is_recorded(cluster, tmp_path):
    bad = Task(cheap.FAIL, {"kind": "error", "seed": 0})
    with Store(tmp_path / "runs.sqlite") as store, ClusterWorkers(cluster.address) as workers:
        found = sweep(lacking(bad), store, workers)
    assert found[bad.identity].error == "ZeroDivisionError: deep inside"


def test_a_scheduler_that_is_gone_is_no_failure_of_the_task(cluster, tmp_path):
    task = Task(SLEEP, {"seconds": 600})
    with Store(tmp_path / "runs.sqlite") as store, ClusterWorkers(cluster.address) as workers:
        with pytest.raises(FactmemError, match="cluster is gone"):
            sweep(lacking(task), store, workers, report=lambda state: cluster.scheduler.kill())
        assert store.records() == []


def test_nobody_answers():
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
def test_an_address_that_is_none(address):
    with pytest.raises(FactmemError, match="is like tcp://host:8786, not"):
        ClusterWorkers(address)


@pytest.mark.parametrize(
    "address",
    ["tcp://host:8786", "tls://10.0.0.1:1", "tcp://my-host.example_1:65535", "tcp://[::1]:5"],
)
def test_an_address(address):
    check_address(address)


def test_certificates_that_are_missing():
    with pytest.raises(FactmemError, match="tls:// needs certificates"):
        ClusterWorkers("tls://127.0.0.1:1")
