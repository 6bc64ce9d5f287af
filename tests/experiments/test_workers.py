"""Workers do tasks in processes of their own, and end with their driver."""

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
from tests.experiments import cheap

from factmem._core.errors import FactmemError
from factmem._core.threads import cores
from factmem.experiments import Experiment, LocalWorkers, Task

ROOT = Path(__file__).parents[2]


def whereabouts(*, number):
    """What a worker can say of itself."""
    import jax

    return {
        "pid": os.getpid(),
        "cores": cores(),
        "jax": "jax" in sys.modules,
        "devices": len(jax.devices()),
        "eigen": os.environ["XLA_FLAGS"],
    }


def sleep_in_shape(*, dim, seed):
    time.sleep(1)
    return {}


def sleep(*, seconds):
    time.sleep(seconds)
    return {}


WHEREABOUTS = Experiment("whereabouts", 1, whereabouts)
SLEEP = Experiment("sleep", 1, sleep)


def gone(process, seconds=10):
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    return True


def children():
    """The workers of this process, without those that are just ending."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "spawn_main" in str(process.cmdline()):
                found.add(process)
    return found


def test_one_worker_for_each_core_with_one_thread():
    with LocalWorkers() as workers:
        assert workers.free() == len(cores())
        futures = [workers.submit(Task(WHEREABOUTS, {"number": n})) for n in range(len(cores()))]
        assert workers.free() == 0
        found = [future.result(60) for future in futures]
        assert workers.free() == len(cores())
    assert {record.metrics["pid"] for record in found} - {os.getpid()}
    assert len({record.metrics["pid"] for record in found}) == len(cores())
    assert sorted(record.metrics["cores"] for record in found) == [[core] for core in cores()]
    assert all("multi_thread_eigen=false" in record.metrics["eigen"] for record in found)
    assert {record.threads for record in found} == {1}


def test_a_worker_serves_again():
    with LocalWorkers(1) as workers:
        pids = {
            workers.submit(Task(WHEREABOUTS, {"number": n})).result(60).metrics["pid"]
            for n in range(3)
        }
    assert len(pids) == 1


def test_closing_ends_all_at_once():
    before = children()
    with LocalWorkers(2) as workers:
        for number in range(2):
            workers.submit(Task(SLEEP, {"seconds": 600 + number}))
        while len(children() - before) < 2:
            time.sleep(0.01)
        started = children() - before
    assert all(gone(process) for process in started)


def test_one_task_can_be_ended_alone():
    with LocalWorkers(2) as workers:
        unneeded = workers.submit(Task(SLEEP, {"seconds": 600}))
        needed = workers.submit(Task(SLEEP, {"seconds": 2}))
        assert workers.stop(unneeded)
        assert workers.free() == 1
        assert workers.submit(Task(SLEEP, {"seconds": 0})).result(60).metrics == {}
        assert needed.result(60).metrics == {}


def test_an_interruption_is_not_for_workers():
    before = children()
    with LocalWorkers(1) as workers:
        future = workers.submit(Task(SLEEP, {"seconds": 1}))
        while not (started := children() - before):
            time.sleep(0.001)
        # From its first moment on, while Python starts in it, and while it works.
        while not future.done():
            for process in started:
                process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        assert future.result().metrics == {}
    # The driver hears it as before.
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_worker_that_died_is_replaced():
    with LocalWorkers(1) as workers:
        dead = workers.submit(Task(cheap.FAIL, {"kind": "death", "seed": 0}))
        with pytest.raises(BrokenProcessPool):
            dead.result(60)
        assert workers.free() == 1
        assert workers.submit(Task(SLEEP, {"seconds": 0})).result(60).metrics == {}


def test_an_error_of_a_task_comes_back():
    with LocalWorkers(1) as workers:
        future = workers.submit(Task(cheap.FAIL, {"kind": "error", "seed": 0}))
        with pytest.raises(ZeroDivisionError, match="deep inside"):
            future.result(60)


def test_there_is_at_least_one():
    with pytest.raises(FactmemError, match="at least one worker"):
        LocalWorkers(0)


DRIVER = """
from concurrent.futures import wait
from factmem.experiments import LocalWorkers, Task
from tests.experiments.test_workers import SLEEP
workers = LocalWorkers(2)
futures = [workers.submit(Task(SLEEP, {"seconds": 600 + n})) for n in range(2)]
print("begun", flush=True)
wait(futures)
"""


@pytest.mark.parametrize("moment", [0.0, 0.2, 1.0])
def test_workers_die_with_a_driver_that_is_killed(moment):
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
    assert all(gone(process) for process in started)


def test_a_task_goes_to_the_worker_that_has_done_its_like():
    def of(dim, seed):
        return Task(Experiment("shaped", 1, sleep_in_shape), {"dim": dim, "seed": seed})

    with LocalWorkers(2) as workers:
        assert workers.scheduling_cost(of(8, 0)) == 1, "nobody has"
        first, second = workers.submit(of(8, 0)), workers.submit(of(16, 0))
        assert workers.scheduling_cost(of(8, 1)) == 2, "those who have are busy"
        assert workers.scheduling_cost(of(32, 1)) == 1
        assert workers._busy[first] != workers._busy[second]
        place = workers._busy[second]
        wait([first, second])
        assert workers.free() == 2
        assert workers.scheduling_cost(of(16, 1)) == 0
        again = workers.submit(of(16, 1))
        assert workers._busy[again] == place
        wait([again])
