"""A sweep reads stored results, executes missing tasks and survives failures and kills."""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.experiments.inline_workers import InlineWorkers
from tests.experiments.sample_tasks import DIE_ONCE, FAIL, pending_among, read_log

from factmem._core.errors import FactmemError
from factmem.experiments import (
    Experiment,
    LocalWorkers,
    PendingTasks,
    Store,
    Task,
    execute,
    scheduler,
    sweep,
)
from factmem.experiments.execute import failure_record

ROOT = Path(__file__).parents[2]


def double(*, number):
    return {"doubled": 2 * number}


def reject(*, number):
    raise FactmemError("this cannot be measured")


DOUBLE = Experiment("double", 1, double)
REJECT = Experiment("reject", 1, reject)


def tasks(*numbers):
    return [Task(DOUBLE, {"number": number}) for number in numbers]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        yield store


def test_interleaved_tasks_take_turns_and_occur_once():
    first = PendingTasks(tasks(1, 2, 3), tasks(7))
    second = PendingTasks(tasks(4, 2), tasks(7, 8))
    both = PendingTasks.interleave([first, PendingTasks(), second])
    assert both == PendingTasks(tasks(1, 4, 2, 3), tasks(7, 8))
    assert PendingTasks.interleave([]) == PendingTasks([], [])


def test_every_task_is_executed_once_and_stored(store):
    needed, workers = tasks(1, 2, 3, 4, 5), InlineWorkers()
    known = sweep(pending_among(needed), store, workers)
    assert [known[task.identity].metrics for task in needed] == [
        {"doubled": 2 * number} for number in (1, 2, 3, 4, 5)
    ]
    assert not any(record.from_store for record in known.values())
    assert len(workers.submitted) == 5
    assert {record.identity for record in store.records()} == set(known)


def test_only_missing_tasks_are_executed(store):
    sweep(pending_among(tasks(1, 2)), store, InlineWorkers())
    workers = InlineWorkers()
    known = sweep(pending_among(tasks(1, 2, 3)), store, workers)
    assert workers.submitted == [{"number": 3}]
    assert [known[task.identity].from_store for task in tasks(1, 2, 3)] == [True, True, False]


def test_fresh_repeats_every_task_and_replaces_its_record(store):
    first = sweep(pending_among(tasks(1, 2)), store, InlineWorkers())
    workers = InlineWorkers()
    known = sweep(pending_among(tasks(1, 2)), store, workers, fresh=True)
    assert len(workers.submitted) == 2
    assert not any(record.from_store for record in known.values())
    assert all(known[name].finished > first[name].finished for name in first)
    assert store.records() == sorted(known.values(), key=lambda record: record.finished)


def test_pending_tasks_may_depend_on_results(store):
    def pending(known):
        chain = tasks(1)
        while chain[-1].identity in known and len(chain) < 5:
            chain += tasks(known[chain[-1].identity].metrics["doubled"])
        return PendingTasks([task for task in chain if task.identity not in known])

    known = sweep(pending, store, InlineWorkers())
    assert sorted(record.metrics["doubled"] for record in known.values()) == [2, 4, 8, 16, 32]
    workers = InlineWorkers()
    again = sweep(pending, store, workers)
    assert workers.submitted == []
    assert again == known


def test_idle_workers_execute_useful_tasks_after_needed_ones(store):
    needed, useful = tasks(1), tasks(10, 11, 12)

    def pending(known):
        return PendingTasks([] if needed[0].identity in known else needed, useful)

    workers = InlineWorkers(count=3, immediate=False)
    reports = []

    def report(state):
        reports.append(state)
        workers.finish_oldest()

    known = sweep(pending, store, workers, report=report)
    assert workers.submitted == [{"number": 1}, {"number": 10}, {"number": 11}]
    assert reports[0].running == 3
    assert reports[0].known == {} or needed[0].identity in reports[0].known
    assert set(known) == {needed[0].identity}


def test_a_useful_task_is_stopped_for_a_needed_one(store):
    first, second, guess = *tasks(1, 2), *tasks(10)

    def pending(known):
        if first.identity not in known:
            return PendingTasks([first], [guess])
        return PendingTasks([task for task in (second, *tasks(3)) if task.identity not in known])

    workers = InlineWorkers(count=2, immediate=False)
    sweep(pending, store, workers, report=lambda state: workers.finish_oldest(guess))
    assert workers.stopped == [guess.config]
    assert [config["number"] for config in workers.submitted] == [1, 10, 2, 3]


def test_useless_tasks_are_stopped_before_useful_ones_and_young_before_old(store):
    first, useless, useful, youngest = tasks(1, 10, 11, 12)
    later = tasks(2, 3, 4)

    def pending(known):
        if first.identity not in known:
            return PendingTasks([first], [useless, useful, youngest])
        return PendingTasks(
            [task for task in later if task.identity not in known], [useful, youngest]
        )

    workers = InlineWorkers(count=4, immediate=False)
    sweep(
        pending, store, workers, report=lambda _: workers.finish_oldest(useless, useful, youngest)
    )
    assert workers.stopped == [useless.config, youngest.config]


def test_a_task_that_is_needed_twice_is_executed_once(store):
    (task,) = tasks(1)
    workers = InlineWorkers(immediate=False)

    def pending(known):
        return PendingTasks([] if task.identity in known else [task, task], [task])

    known = sweep(pending, store, workers, report=lambda _: workers.finish_oldest())
    assert len(workers.submitted) == 1
    assert not known[task.identity].from_store


def test_a_known_task_may_still_be_useful(store):
    first, second = tasks(1, 2)
    sweep(pending_among([first]), store, InlineWorkers())
    known = sweep(
        lambda known: PendingTasks([] if second.identity in known else [second], [first]),
        store,
        InlineWorkers(),
    )
    assert set(known) == {first.identity, second.identity}


def test_a_failure_does_not_replace_a_success(store):
    task = Task(FAIL, {"kind": "error", "seed": 0})
    good = replace(failure_record(task, ValueError("x"), 1.0), error=None, metrics={"fine": True})
    store.put(good)
    known = sweep(pending_among([task]), store, InlineWorkers(), fresh=True)
    assert known[task.identity].error == "ZeroDivisionError: deep inside"
    assert not known[task.identity].from_store
    assert store.get(task.identity) == good


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("odd \udcff\n\x1b[31m")])
def test_any_error_of_a_task_is_stored_as_one_printable_line(store, error):
    class RaisingWorkers(InlineWorkers):
        def finish(self, future):
            future.set_exception(error)

    (task,) = tasks(1)
    known = sweep(pending_among([task]), store, RaisingWorkers())
    message = known[task.identity].error
    assert message.startswith(type(error).__name__)
    assert message.isprintable()
    assert store.get(task.identity).error == message


def test_the_result_that_another_process_stored_first_counts(store):
    (task,) = tasks(1)
    workers = InlineWorkers(immediate=False)

    def report(state):
        store.put(execute(task))
        workers.finish_oldest()

    known = sweep(pending_among([task]), store, workers, report=report)
    assert known[task.identity].from_store
    assert len(store.records()) == 1


def test_a_factmem_error_is_recorded_without_a_second_attempt(store):
    workers = InlineWorkers()
    bad = Task(REJECT, {"number": 0})
    known = sweep(pending_among([bad, *tasks(1, 2)]), store, workers)
    assert known[bad.identity].error == "FactmemError: this cannot be measured"
    assert known[bad.identity].metrics is None
    assert len(workers.submitted) == 3
    assert len(known) == 3


def test_a_failing_task_is_tried_three_times_and_recorded(store):
    workers = InlineWorkers()
    bad = Task(FAIL, {"kind": "error", "seed": 0})
    known = sweep(pending_among([bad, *tasks(1)]), store, workers)
    assert known[bad.identity].error == "ZeroDivisionError: deep inside"
    assert workers.submitted.count(bad.config) == 3
    assert store.get(bad.identity).error == "ZeroDivisionError: deep inside"
    # The next sweep tries it again: the cause may be gone.
    again = InlineWorkers()
    sweep(pending_among([bad, *tasks(1)]), store, again)
    assert again.submitted.count(bad.config) == 3
    assert again.submitted.count({"number": 1}) == 0


def test_a_sweep_waits_for_workers_that_are_not_there_yet(store, monkeypatch):
    monkeypatch.setattr(scheduler, "_REPORT_INTERVAL", 0.05)

    class LateWorkers(InlineWorkers):
        calls = 0

        def free(self):
            self.calls += 1
            return super().free() if self.calls > 2 else 0

    assert len(sweep(pending_among(tasks(1)), store, LateWorkers())) == 1


def test_tasks_of_low_scheduling_cost_are_submitted_first(store):
    class ChoosyWorkers(InlineWorkers):
        def scheduling_cost(self, task):
            return task.config["number"] % 3

    workers = ChoosyWorkers(1)
    sweep(pending_among(tasks(1, 2, 3, 4, 5, 6)), store, workers)
    assert [config["number"] for config in workers.submitted] == [3, 6, 1, 4, 2, 5]


# ---- real processes -----------------------------------------------------------------------------


def test_a_task_whose_worker_dies_is_repeated(store, tmp_path):
    task = Task(DIE_ONCE, {"flag": str(tmp_path / "flag")})
    with LocalWorkers(2) as workers:
        known = sweep(pending_among([task]), store, workers)
    assert known[task.identity].metrics == {"done": True}


def test_a_task_that_always_kills_its_worker_is_recorded(store):
    deadly = Task(FAIL, {"kind": "death", "seed": 0})
    harmless = Task(DIE_ONCE, {"flag": __file__})
    with LocalWorkers(1) as workers:
        known = sweep(pending_among([deadly, harmless]), store, workers)
    assert "BrokenProcessPool" in known[deadly.identity].error
    assert known[harmless.identity].metrics == {"done": True}


TASK_SECONDS = 0.02


def start_driver(store, log):
    module = "tests.experiments.sample_tasks"
    return subprocess.Popen(
        [sys.executable, "-m", module, str(store), str(log), str(TASK_SECONDS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_brackets(driver):
    out, err = driver.communicate(timeout=120)
    assert driver.returncode == 0, err
    return json.loads(out)


def stored_tasks(path):
    if not path.exists():
        return set()
    with Store(path) as store:
        return {tuple(r.config[k] for k in ("dim", "size", "seed")) for r in store.records()}


def started_tasks(log):
    return [(entry["dim"], entry["size"], entry["seed"]) for entry in read_log(log)]


def children(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_for_tasks(count, log, driver):
    """Wait until `count` tasks have started or the driver has finished; return the seconds."""
    start = time.monotonic()
    while len(read_log(log)) < count and driver.poll() is None:
        time.sleep(0.005)
    return time.monotonic() - start


def test_killing_the_driver_at_twenty_moments_loses_and_repeats_no_finished_run(tmp_path):
    path, log = tmp_path / "runs.sqlite", tmp_path / "log"
    driver = start_driver(tmp_path / "undisturbed.sqlite", tmp_path / "undisturbed.log")
    startup = wait_for_tasks(1, tmp_path / "undisturbed.log", driver)
    undisturbed = read_brackets(driver)
    moments, kills, finished = random.Random(0), 0, 0
    while kills < 20:
        stored_before, started_before = stored_tasks(path), len(read_log(log))
        driver = start_driver(path, log)
        tasks_until_kill = kills % 5
        if tasks_until_kill:
            wait_for_tasks(started_before + tasks_until_kill, log, driver)
            time.sleep(moments.uniform(0, TASK_SECONDS))
        else:
            time.sleep(moments.uniform(0, startup))
        if driver.poll() is not None:  # it finished: start with an empty store
            assert read_brackets(driver) == undisturbed
            finished += 1
            assert finished < 20
            for file in tmp_path.glob("runs.sqlite*"):
                file.unlink()
            log.unlink()
            continue
        workers = children(driver)
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        kills += 1
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive
        assert stored_before <= stored_tasks(path), "a finished run was lost"
        started = set(started_tasks(log)[started_before:])
        assert not stored_before & started, "a finished run was repeated"
    stored_before, started_before = stored_tasks(path), len(read_log(log))
    assert stored_before, "some runs finished before a kill"
    assert read_brackets(start_driver(path, log)) == undisturbed
    assert not stored_before & set(started_tasks(log)[started_before:])
