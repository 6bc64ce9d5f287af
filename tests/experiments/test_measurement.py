"""Measurements: what they want, what is left, what they come to, and where runs come from."""

import pytest
from tests.paper.here import Here

from factmem.experiments import Experiment, Store, Task, execute
from factmem.experiments.measurement import (
    Measurement,
    MeasurementGroup,
    Progress,
    IndependentTasks,
    direct,
    complete_records,
    measure,
    stored_records,
)
from factmem.experiments.scheduler import PendingTasks


def double(*, number, seed):
    double.calls += 1
    return {"twice": 2 * number, "seed": seed}


double.calls = 0


def fail(*, seed):
    raise ZeroDivisionError("deep inside")


KEPT = Experiment("double", 1, double)


def tasks(*numbers):
    return tuple(Task(KEPT, {"number": number, "seed": 0}) for number in numbers)


def runs(*numbers):
    return IndependentTasks(tasks(*numbers))


def done(*which):
    return {task.identity: execute(task) for task in which}


class Chain:
    """A second run that is known only once the first is there."""

    def __init__(self, number):
        (self.first,) = tasks(number)

    def second(self, known):
        (second,) = tasks(known[self.first.identity].metrics["twice"])
        return second

    def pending(self, known, /):
        if self.first.identity not in known:
            return PendingTasks([self.first])
        second = self.second(known)
        return PendingTasks([] if second.identity in known else [second])

    def remaining(self, known, /):
        return len(self.pending(known).needed) + (self.first.identity not in known)

    def result(self, known, /):
        return known[self.second(known).identity].metrics["twice"]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as kept:
        yield kept


def test_runs_want_what_is_missing_and_come_to_what_was_measured_in_their_order():
    three = runs(5, 1, 3)
    assert [task.config["number"] for task in three.pending({}).needed] == [5, 1, 3]
    assert three.remaining({}) == 3
    known = done(*tasks(1))
    assert [task.config["number"] for task in three.pending(known).needed] == [5, 3]
    assert three.remaining(known) == 2
    known |= done(*tasks(3, 5, 9))
    assert not three.pending(known).needed
    assert three.remaining(known) == 0
    assert [found["twice"] for found in three.result(known)] == [10, 2, 6]


def test_several_measurements_want_each_task_once_and_have_a_result_each():
    both = MeasurementGroup({"a": runs(1, 2), "b": runs(2, 3)})
    assert sorted(task.config["number"] for task in both.pending({}).needed) == [1, 2, 3]
    assert both.remaining({}) == 4, "each counts what it waits for"
    known = done(*tasks(2))
    assert sorted(task.config["number"] for task in both.pending(known).needed) == [1, 3]
    assert both.remaining(known) == 2
    known |= done(*tasks(1, 3))
    found = both.result(known)
    assert {name: [r["twice"] for r in found[name]] for name in found} == {"a": [2, 4], "b": [4, 6]}


def test_what_comes_first_is_said_by_an_order_and_else_they_take_turns():
    parts = {"a": runs(5, 1, 9), "b": runs(4, 7)}

    def numbers(measured):
        return [task.config["number"] for task in measured.pending({}).needed]

    assert numbers(MeasurementGroup(parts)) == [5, 4, 1, 7, 9]
    assert numbers(MeasurementGroup(parts, order=lambda task: task.config["number"])) == [
        1,
        4,
        5,
        7,
        9,
    ]
    odd_first = MeasurementGroup(parts, order=lambda task: task.config["number"] % 2 == 0)
    assert numbers(odd_first) == [5, 1, 7, 9, 4]


def test_runs_that_are_missing_have_no_metrics():
    assert runs(1, 2).result(done(*tasks(2))) == [{}, {"twice": 4, "seed": 0}]


def test_all_of_them_are_measurements():
    for each in (runs(1), MeasurementGroup({}), unstored_tasks(double, [0], number=1), Chain(1)):
        assert isinstance(each, Measurement)
    assert not isinstance(PendingTasks(), Measurement)


def test_direct_runs_have_a_task_a_seed_that_is_never_kept(store):
    twice = unstored_tasks(double, [4, 7], number=3)
    assert [dict(task.config) for task in twice.tasks] == [
        {"number": 3, "seed": 4},
        {"number": 3, "seed": 7},
    ]
    before = double.calls
    for _ in range(2):
        found = measure(twice, store, Here())
        assert found == [{"twice": 6, "seed": 4}, {"twice": 6, "seed": 7}]
    assert double.calls == before + 4
    assert store.records() == []
    assert complete_records(twice, store) is None


def test_what_is_kept_is_measured_once(store):
    before = double.calls
    for _ in range(2):
        assert measure(Chain(1), store, Here()) == 4
    assert double.calls == before + 2
    assert measure(Chain(1), store, Here(), fresh=True) == 4
    assert double.calls == before + 4


def test_a_store_has_a_measurement_when_it_has_all_of_it(store):
    assert complete_records(Chain(1), store) is None
    store.put(execute(Chain(1).first))
    assert complete_records(Chain(1), store) is None, "one of two is there"
    measure(Chain(1), store, Here())
    known = complete_records(Chain(1), store)
    assert sorted(record.metrics["twice"] for record in known.values()) == [2, 4]
    assert Chain(1).result(known) == 4
    assert complete_records(MeasurementGroup({"a": Chain(1), "b": runs(1)}), store).keys() == known.keys()
    assert complete_records(MeasurementGroup({"a": Chain(1), "b": runs(8)}), store) is None
    assert complete_records(MeasurementGroup({}), store) == {}


def test_a_run_that_failed_is_not_there(store):
    flaky = IndependentTasks((Task(Experiment("fail", 1, fail), {"seed": 0}),))
    assert measure(flaky, store, Here()) == [{}]
    assert [record.error for record in store.records()] == ["ZeroDivisionError: deep inside"]
    assert complete_records(flaky, store) is None
    assert stored_records(flaky, store) == {}


def test_a_store_gives_what_it_has_of_a_measurement(store):
    three = runs(1, 2, 3)
    assert stored_records(three, store) == {}
    kept = [store.put(execute(task)) for task in tasks(1, 2, 9)]
    assert stored_records(three, store) == {each.identity: each for each in kept[:2]}
    assert len(stored_records(Chain(1), store)) == 2, "what is there leads to what comes next"
    never = unstored_tasks(double, [0], number=1)
    store.put(execute(never.tasks[0]))
    assert stored_records(never, store) == {}


def test_progress_counts_down_to_the_runs_that_are_being_made(store):
    reports = []
    measure(runs(1, 2, 3, 4), store, Here(), report=reports.append)
    assert all(report.done + report.left == 4 for report in reports)
    left = [report.left for report in reports]
    assert left == sorted(left, reverse=True)
    assert (reports[0].done, reports[0].left) == (0, 4)
    assert (reports[-1].left, reports[-1].running) == (0, 0)


def test_where_nothing_is_to_be_done_it_says_so_at_once(store):
    reports = []
    measure(runs(1), store, Here())
    assert measure(runs(1), store, Here(), report=reports.append) == [{"twice": 2, "seed": 0}]
    assert reports == [Progress(done=1, running=0, left=0)]
