"""Workers execute tasks in their own processes and end with their driver."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.experiments.sample_tasks import FAIL, SLEEP

from factmem._core.errors import FactmemError
from factmem._core.threads import available_cores
from factmem.experiments import Experiment, LocalWorkers, Task

ROOT = Path(__file__).parents[2]


def describe_worker(*, number):
    """Return the process, the cores and the jax settings of a worker."""
    import jax

    return {
        "pid": os.getpid(),
        "cores": available_cores(),
        "jax": "jax" in sys.modules,
        "devices": len(jax.devices()),
        "eigen": os.environ["XLA_FLAGS"],
    }


def sleep_in_shape(*, dim, seed):
    time.sleep(0.2)
    return {}


DESCRIBE = Experiment("describe", 1, describe_worker)
SHAPED = Experiment("shaped", 1, sleep_in_shape)


def has_ended(process, seconds=10):
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    return True


def worker_processes():
    """Return the workers of this process, without those that are just ending."""
    workers = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "spawn_main" in str(process.cmdline()):
                workers.add(process)
    return workers


def test_there_is_one_worker_per_core_with_one_thread_that_is_reused():
    cores = available_cores()
    with LocalWorkers() as workers:
        assert workers.free() == len(cores)
        futures = [workers.submit(Task(DESCRIBE, {"number": n})) for n in range(len(cores))]
        assert workers.free() == 0
        records = [future.result(60) for future in futures]
        assert workers.free() == len(cores)
        again = workers.submit(Task(DESCRIBE, {"number": 0})).result(60)
    pids = {record.metrics["pid"] for record in records}
    assert os.getpid() not in pids
    assert len(pids) == len(cores)
    assert again.metrics["pid"] in pids
    assert sorted(record.metrics["cores"] for record in records) == [[core] for core in cores]
    assert all("multi_thread_eigen=false" in record.metrics["eigen"] for record in records)
    assert {record.threads for record in records} == {1}


def test_closing_ends_all_workers_at_once():
    before = worker_processes()
    with LocalWorkers(2) as workers:
        for number in range(2):
            workers.submit(Task(SLEEP, {"seconds": 600 + number}))
        while len(worker_processes() - before) < 2:
            time.sleep(0.01)
        started = worker_processes() - before
    assert all(has_ended(process) for process in started)


def test_one_task_can_be_stopped_while_others_run():
    with LocalWorkers(2) as workers:
        unneeded = workers.submit(Task(SLEEP, {"seconds": 600}))
        needed = workers.submit(Task(SLEEP, {"seconds": 1}))
        assert workers.stop(unneeded)
        assert workers.free() == 1
        assert workers.submit(Task(SLEEP, {"seconds": 0})).result(60).metrics == {}
        assert needed.result(60).metrics == {}


def test_workers_ignore_ctrl_c():
    before = worker_processes()
    with LocalWorkers(1) as workers:
        future = workers.submit(Task(SLEEP, {"seconds": 0.3}))
        while not (started := worker_processes() - before):
            time.sleep(0.001)
        # From the first moment, while Python starts, and while the task runs.
        while not future.done():
            for process in started:
                process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        assert future.result().metrics == {}
    # The driver still handles it.
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_worker_that_died_is_replaced():
    with LocalWorkers(1) as workers:
        dead = workers.submit(Task(FAIL, {"kind": "death", "seed": 0}))
        with pytest.raises(BrokenProcessPool):
            dead.result(60)
        assert workers.free() == 1
        assert workers.submit(Task(SLEEP, {"seconds": 0})).result(60).metrics == {}


def test_the_future_raises_the_error_of_the_task():
    with LocalWorkers(1) as workers:
        future = workers.submit(Task(FAIL, {"kind": "error", "seed": 0}))
        with pytest.raises(ZeroDivisionError, match="deep inside"):
            future.result(60)


def test_rejects_zero_workers():
    with pytest.raises(FactmemError, match="workers must be at least 1, got 0"):
        LocalWorkers(0)


DRIVER = """
from concurrent.futures import wait
from factmem.experiments import LocalWorkers, Task
from tests.experiments.sample_tasks import SLEEP
workers = LocalWorkers(2)
futures = [workers.submit(Task(SLEEP, {"seconds": 600 + n})) for n in range(2)]
print("started", flush=True)
wait(futures)
"""


@pytest.mark.parametrize("moment", [0.0, 0.2, 1.0])
def test_workers_end_when_their_driver_is_killed(moment):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    driver.stdout.readline()
    time.sleep(moment)
    started = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert started
    assert all(has_ended(process) for process in started)


def test_a_task_goes_to_the_worker_that_has_compiled_its_shape():
    def shaped_task(dim, seed):
        return Task(SHAPED, {"dim": dim, "seed": seed})

    with LocalWorkers(2) as workers:
        assert workers.scheduling_cost(shaped_task(8, 0)) == 1, "no worker has compiled it"
        first, second = workers.submit(shaped_task(8, 0)), workers.submit(shaped_task(16, 0))
        assert workers.scheduling_cost(shaped_task(8, 1)) == 2, "that worker is busy"
        assert workers.scheduling_cost(shaped_task(32, 1)) == 1
        assert workers._busy[first] != workers._busy[second]
        slot = workers._busy[second]
        wait([first, second])
        assert workers.free() == 2
        assert workers.scheduling_cost(shaped_task(16, 1)) == 0
        again = workers.submit(shaped_task(16, 1))
        assert workers._busy[again] == slot
        wait([again])
