"""A sweep reads what is there, does what is missing, and survives workers, drivers and failures."""

import json
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.experiments import cheap

from factmem._core.errors import FactmemError
from factmem.experiments import (
    Experiment,
    LocalWorkers,
    PendingTasks,
    Store,
    Task,
    Workers,
    execute,
    sweep,
)
from factmem.experiments.execute import failure_record

ROOT = Path(__file__).parents[2]


def double(*, number):
    return {"doubled": 2 * number}


def refuse(*, number):
    raise FactmemError("this cannot be asked")


DOUBLE = Experiment("double", 1, double)
REFUSE = Experiment("refuse", 1, refuse)


class Here(Workers):
    """Does tasks in this process: at once, or when it is told to."""

    def __init__(self, count=2, at_once=True):
        self.count, self.at_once = count, at_once
        self.open, self.submitted, self.stopped = {}, [], []

    def free(self):
        self.open = {future: task for future, task in self.open.items() if not future.done()}
        return self.count - len(self.open)

    def submit(self, task):
        assert self.free()
        future = Future()
        self.open[future] = task
        self.submitted.append(task.config)
        if self.at_once:
            self.finish(future)
        return future

    def finish(self, future):
        try:
            future.set_result(execute(self.open[future]))
        except Exception as error:
            future.set_exception(error)

    def finish_one(self, *but):
        """The oldest that is open, except these."""
        self.finish(next(f for f, task in self.open.items() if not f.done() and task not in but))

    def stop(self, future):
        self.stopped.append(self.open.pop(future).config)
        return True

    def close(self):
        self.open = {}


def tasks(*numbers, measure=DOUBLE):
    return [Task(measure, {"number": number}) for number in numbers]


def lacking(all_tasks):
    return lambda known: PendingTasks([task for task in all_tasks if task.identity not in known])


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        yield store


def test_several_wants_take_turns_and_a_task_comes_once():
    first = PendingTasks(tasks(1, 2, 3), tasks(7))
    second = PendingTasks(tasks(4, 2), tasks(7, 8))
    both = PendingTasks.of_all([first, PendingTasks(), second])
    assert both == PendingTasks(tasks(1, 4, 2, 3), tasks(7, 8))
    assert PendingTasks.of_all([]) == PendingTasks([], [])


def test_everything_is_done_once_and_kept(store):
    wanted, workers = tasks(1, 2, 3, 4, 5), Here()
    found = sweep(lacking(wanted), store, workers)
    assert [found[task.identity].metrics for task in wanted] == [
        {"doubled": 2 * number} for number in (1, 2, 3, 4, 5)
    ]
    assert not any(record.from_store for record in found.values())
    assert len(workers.submitted) == 5
    assert {record.identity for record in store.records()} == set(found)


def test_only_what_is_missing_is_done_and_the_rest_is_said_to_be_read(store):
    sweep(lacking(tasks(1, 2)), store, Here())
    workers = Here()
    found = sweep(lacking(tasks(1, 2, 3)), store, workers)
    assert workers.submitted == [{"number": 3}]
    assert [found[task.identity].kept for task in tasks(1, 2, 3)] == [True, True, False]


def test_fresh_does_everything_again_and_replaces_it(store):
    first = sweep(lacking(tasks(1, 2)), store, Here())
    workers = Here()
    found = sweep(lacking(tasks(1, 2)), store, workers, fresh=True)
    assert len(workers.submitted) == 2
    assert not any(record.from_store for record in found.values())
    assert all(found[name].finished > first[name].finished for name in first)
    assert store.records() == sorted(found.values(), key=lambda record: record.finished)


def test_what_is_wanted_may_depend_on_results(store):
    def pending(known):
        chain = tasks(1)
        while chain[-1].identity in known and len(chain) < 5:
            chain += tasks(known[chain[-1].identity].metrics["doubled"])
        return PendingTasks([task for task in chain if task.identity not in known])

    found = sweep(wanted, store, Here())
    assert sorted(record.metrics["doubled"] for record in found.values()) == [2, 4, 8, 16, 32]
    workers = Here()
    again = sweep(wanted, store, workers)
    assert workers.submitted == []
    assert again == found


def test_idle_workers_do_what_may_be_needed_and_never_first(store):
    needed, useful = tasks(1), tasks(10, 11, 12)

    def pending(known):
        return PendingTasks([] if needed[0].identity in known else needed, useful)

    workers = Here(count=3, at_once=False)
    reports = []

    def report(state):
        reports.append(state)
        workers.finish_one()

    found = sweep(wanted, store, workers, report=report)
    assert workers.submitted == [{"number": 1}, {"number": 10}, {"number": 11}]
    assert reports[0].running == 3
    assert reports[0].known == {} or needed[0].identity in reports[0].known
    assert set(found) == {needed[0].identity}


def test_a_guess_makes_room_for_what_is_needed(store):
    first, then, guess = tasks(1)[0], tasks(2)[0], tasks(10)[0]

    def pending(known):
        if first.identity not in known:
            return PendingTasks([first], [guess])
        return PendingTasks([task for task in (then, *tasks(3)) if task.identity not in known])

    workers = Here(count=2, at_once=False)

    def report(state):
        workers.finish_one(guess)

    sweep(wanted, store, workers, report=report)
    assert workers.stopped == [guess.config]
    assert [config["number"] for config in workers.submitted] == [1, 10, 2, 3]


def test_of_two_guesses_the_useless_and_then_the_younger_makes_room(store):
    first, useless, useful, younger = tasks(1, 10, 11, 12)
    later = tasks(2, 3, 4)

    def pending(known):
        if first.identity not in known:
            return PendingTasks([first], [useless, useful, younger])
        return PendingTasks(
            [task for task in later if task.identity not in known], [useful, younger]
        )

    workers = Here(count=4, at_once=False)
    sweep(wanted, store, workers, report=lambda _: workers.finish_one(useless, useful, younger))
    assert workers.stopped == [useless.config, younger.config]


def test_a_task_that_is_wanted_twice_is_done_once(store):
    (task,) = tasks(1)
    workers = Here(at_once=False)

    def pending(known):
        return PendingTasks([] if task.identity in known else [task, task], [task])

    found = sweep(wanted, store, workers, report=lambda _: workers.finish_one())
    assert len(workers.submitted) == 1
    assert not found[task.identity].kept


def test_a_known_task_may_still_be_called_useful(store):
    first, second = tasks(1, 2)
    sweep(lacking([first]), store, Here())
    found = sweep(
        lambda known: PendingTasks([] if second.identity in known else [second], [first]),
        store,
        Here(),
    )
    assert set(found) == {first.identity, second.identity}


def test_a_failure_does_not_replace_what_succeeded(store):
    task = Task(cheap.FAIL, {"kind": "error", "seed": 0})
    good = replace(failure_record(task, ValueError("x"), 1.0), error=None, metrics={"fine": True})
    store.put(good)
    found = sweep(lacking([task]), store, Here(), fresh=True)
    assert found[task.identity].error == "ZeroDivisionError: deep inside"
    assert not found[task.identity].kept
    assert store.get(task.identity) == good


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("odd \udcff\n\x1b[31m")])
def test_whatever_a_task_raises_is_kept_as_one_line(store, error):
    class Raising(Here):
        def finish(self, future):
            future.set_exception(error)

    (task,) = tasks(1)
    found = sweep(lacking([task]), store, Raising())
    told = found[task.identity].error
    assert told.startswith(type(error).__name__)
    assert told.isprintable()
    assert store.get(task.identity).error == told


def test_the_result_of_a_process_that_was_faster_counts(store):
    (task,) = tasks(1)
    workers = Here(at_once=False)

    def report(state):
        store.put(execute(task))
        workers.finish_one()

    found = sweep(lacking([task]), store, workers, report=report)
    assert found[task.identity].kept
    assert len(store.records()) == 1


def test_a_question_that_cannot_be_asked_is_recorded_at_once_and_stops_nothing(store):
    workers = Here()
    bad = Task(REFUSE, {"number": 0})
    found = sweep(lacking([bad, *tasks(1, 2)]), store, workers)
    assert found[bad.identity].error == "FactmemError: this cannot be asked"
    assert found[bad.identity].metrics is None
    assert len(workers.submitted) == 3
    assert len(found) == 3


def test_what_keeps_failing_is_tried_three_times_and_recorded(store):
    workers = Here()
    bad = Task(cheap.FAIL, {"kind": "error", "seed": 0})
    found = sweep(lacking([bad, *tasks(1)]), store, workers)
    assert found[bad.identity].error == "ZeroDivisionError: deep inside"
    assert workers.submitted.count(bad.config) == 3
    assert store.get(bad.identity).error == "ZeroDivisionError: deep inside"
    # Another start tries it again: the reason may be gone.
    again = Here()
    sweep(lacking([bad, *tasks(1)]), store, again)
    assert again.submitted.count(bad.config) == 3
    assert again.submitted.count({"number": 1}) == 0


def test_no_worker_yet_is_no_end(store):
    class Late(Here):
        asked = 0

        def free(self):
            self.asked += 1
            return super().free() if self.asked > 2 else 0

    assert len(sweep(lacking(tasks(1)), store, Late())) == 1


# ---- real processes ------------------------------------------------------------------------------


def test_a_task_whose_worker_dies_is_repeated(store, tmp_path):
    task = Task(cheap.DIE_ONCE, {"flag": str(tmp_path / "flag")})
    with LocalWorkers(2) as workers:
        found = sweep(lacking([task]), store, workers)
    assert found[task.identity].metrics == {"done": True}


def test_a_task_that_always_kills_its_worker_is_recorded(store):
    deadly = Task(cheap.FAIL, {"kind": "death", "seed": 0})
    harmless = Task(cheap.DIE_ONCE, {"flag": __file__})
    with LocalWorkers(1) as workers:
        found = sweep(lacking([deadly, harmless]), store, workers)
    assert "BrokenProcessPool" in found[deadly.identity].error
    assert found[harmless.identity].metrics == {"done": True}


def driver(store, log, seconds=0.02):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.experiments.cheap", str(store), str(log), str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def stored(path):
    if not path.exists():
        return set()
    with Store(path) as store:
        return {tuple(r.config[k] for k in ("dim", "size", "seed")) for r in store.records()}


def begun(log):
    return [(entry["dim"], entry["size"], entry["seed"]) for entry in cheap.told(log)]


def offspring(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def test_killing_the_driver_at_twenty_moments_loses_and_repeats_nothing(tmp_path):
    path, log = tmp_path / "runs.sqlite", tmp_path / "log"
    start = time.monotonic()
    undisturbed = outcome(driver(tmp_path / "undisturbed.sqlite", tmp_path / "undisturbed.log"))
    whole = time.monotonic() - start
    moments, kills, early = random.Random(0), 0, 0
    while kills < 20:
        before, seen = stored(path), len(cheap.told(log))
        running = driver(path, log, 0.1)
        time.sleep(moments.uniform(0, whole))
        if running.poll() is not None:  # it was over: begin anew
            assert outcome(running) == undisturbed
            early += 1
            assert early < 20
            for file in tmp_path.glob("runs.sqlite*"):
                file.unlink()
            log.unlink()
            continue
        workers = offspring(running)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        kills += 1
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive
        assert before <= stored(path), "a finished run was lost"
        assert not before & set(begun(log)[seen:]), "a finished run was repeated"
    before, seen = stored(path), len(cheap.told(log))
    assert outcome(driver(path, log, 0.1)) == undisturbed
    assert not before & set(begun(log)[seen:])


def test_workers_first_begin_what_suits_them(store):
    class Choosy(Here):
        def scheduling_cost(self, task):
            return task.config["number"] % 3

    workers = Choosy(1)
    sweep(lacking(tasks(1, 2, 3, 4, 5, 6)), store, workers)
    assert [config["number"] for config in workers.submitted] == [3, 6, 1, 4, 2, 5]
