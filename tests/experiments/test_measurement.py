"""Measurements: their pending tasks, their results, and the tasks that results use."""

import pytest
from tests.experiments.inline_workers import InlineWorkers
from tests.paper.stand_ins import run_all, train_by_law

from factmem.experiments import (
    CapacitySearches,
    Experiment,
    LimitedCapacitySearches,
    Store,
    Task,
    TransformerCapacityProblem,
    execute,
)
from factmem.experiments.measurement import (
    IndependentTasks,
    Measurement,
    MeasurementGroup,
    Progress,
    complete_records,
    measure,
    stored_records,
    uncached_tasks,
    unique_tasks,
)
from factmem.experiments.scheduler import PendingTasks
from factmem.transformer import Shape


def double(*, number, seed):
    double.calls += 1
    return {"twice": 2 * number, "seed": seed}


double.calls = 0


def fail(*, seed):
    raise ZeroDivisionError("deep inside")


DOUBLE = Experiment("double", 1, double)


def tasks(*numbers):
    return tuple(Task(DOUBLE, {"number": number, "seed": 0}) for number in numbers)


def independent_tasks(*numbers):
    return IndependentTasks(tasks(*numbers))


def records(*tasks):
    return {task.identity: execute(task) for task in tasks}


class Chain:
    """A task, and a second one that depends on its result."""

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

    def used_tasks(self, known, /):
        return [self.first, self.second(known)] if self.first.identity in known else [self.first]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        yield store


def test_independent_tasks_have_results_in_their_order():
    three = independent_tasks(5, 1, 3)
    assert [task.config["number"] for task in three.pending({}).needed] == [5, 1, 3]
    assert three.remaining({}) == 3
    known = records(*tasks(1))
    assert [task.config["number"] for task in three.pending(known).needed] == [5, 3]
    assert three.remaining(known) == 2
    known |= records(*tasks(3, 5, 9))
    assert not three.pending(known).needed
    assert three.remaining(known) == 0
    assert [metrics["twice"] for metrics in three.result(known)] == [10, 2, 6]


def test_a_group_needs_each_task_once_and_has_one_result_per_part():
    both = MeasurementGroup({"a": independent_tasks(1, 2), "b": independent_tasks(2, 3)})
    assert sorted(task.config["number"] for task in both.pending({}).needed) == [1, 2, 3]
    assert both.remaining({}) == 4, "a shared task counts for each part"
    known = records(*tasks(2))
    assert sorted(task.config["number"] for task in both.pending(known).needed) == [1, 3]
    assert both.remaining(known) == 2
    known |= records(*tasks(1, 3))
    results = both.result(known)
    doubled = {name: [entry["twice"] for entry in results[name]] for name in results}
    assert doubled == {"a": [2, 4], "b": [4, 6]}


def test_parts_of_a_group_take_turns_unless_there_is_an_order():
    parts = {"a": independent_tasks(5, 1, 9), "b": independent_tasks(4, 7)}

    def numbers(group):
        return [task.config["number"] for task in group.pending({}).needed]

    assert numbers(MeasurementGroup(parts)) == [5, 4, 1, 7, 9]
    ascending = MeasurementGroup(parts, order=lambda task: task.config["number"])
    assert numbers(ascending) == [1, 4, 5, 7, 9]
    odd_first = MeasurementGroup(parts, order=lambda task: task.config["number"] % 2 == 0)
    assert numbers(odd_first) == [5, 1, 7, 9, 4]


def test_missing_records_have_empty_metrics():
    assert independent_tasks(1, 2).result(records(*tasks(2))) == [{}, {"twice": 4, "seed": 0}]


def test_every_kind_is_a_measurement():
    unstored = uncached_tasks(double, [0], number=1)
    for measurement in (independent_tasks(1), MeasurementGroup({}), unstored, Chain(1)):
        assert isinstance(measurement, Measurement)
    assert not isinstance(PendingTasks(), Measurement)


def test_unstored_tasks_are_executed_every_time(store):
    twice = uncached_tasks(double, [4, 7], number=3)
    assert [dict(task.config) for task in twice.tasks] == [
        {"number": 3, "seed": 4},
        {"number": 3, "seed": 7},
    ]
    before = double.calls
    for _ in range(2):
        result = measure(twice, store, InlineWorkers())
        assert result == [{"twice": 6, "seed": 4}, {"twice": 6, "seed": 7}]
    assert double.calls == before + 4
    assert store.records() == []
    assert complete_records(twice, store) is None


def test_stored_tasks_are_executed_once(store):
    before = double.calls
    for _ in range(2):
        assert measure(Chain(1), store, InlineWorkers()) == 4
    assert double.calls == before + 2
    assert measure(Chain(1), store, InlineWorkers(), fresh=True) == 4
    assert double.calls == before + 4


def test_records_are_complete_only_if_the_store_has_all(store):
    assert complete_records(Chain(1), store) is None
    store.put(execute(Chain(1).first))
    assert complete_records(Chain(1), store) is None, "one of two is stored"
    measure(Chain(1), store, InlineWorkers())
    known = complete_records(Chain(1), store)
    assert sorted(record.metrics["twice"] for record in known.values()) == [2, 4]
    assert Chain(1).result(known) == 4
    stored = MeasurementGroup({"a": Chain(1), "b": independent_tasks(1)})
    assert complete_records(stored, store).keys() == known.keys()
    missing = MeasurementGroup({"a": Chain(1), "b": independent_tasks(8)})
    assert complete_records(missing, store) is None
    assert complete_records(MeasurementGroup({}), store) == {}


def test_a_failed_run_counts_as_missing(store):
    failing = IndependentTasks((Task(Experiment("fail", 1, fail), {"seed": 0}),))
    assert measure(failing, store, InlineWorkers()) == [{}]
    assert [record.error for record in store.records()] == ["ZeroDivisionError: deep inside"]
    assert complete_records(failing, store) is None
    assert stored_records(failing, store) == {}


def test_stored_records_are_those_that_the_store_has(store):
    three = independent_tasks(1, 2, 3)
    assert stored_records(three, store) == {}
    stored = [store.put(execute(task)) for task in tasks(1, 2, 9)]
    assert stored_records(three, store) == {record.identity: record for record in stored[:2]}
    assert len(stored_records(Chain(1), store)) == 2, "the first leads to the second"
    never = uncached_tasks(double, [0], number=1)
    store.put(execute(never.tasks[0]))
    assert stored_records(never, store) == {}


def test_progress_counts_down(store):
    reports = []
    measure(independent_tasks(1, 2, 3, 4), store, InlineWorkers(), report=reports.append)
    assert all(report.done + report.remaining == 4 for report in reports)
    remaining = [report.remaining for report in reports]
    assert remaining == sorted(remaining, reverse=True)
    assert (reports[0].done, reports[0].remaining) == (0, 4)
    assert (reports[-1].remaining, reports[-1].running) == (0, 0)


def test_progress_is_reported_once_if_everything_is_stored(store):
    reports = []
    measure(independent_tasks(1), store, InlineWorkers())
    result = measure(independent_tasks(1), store, InlineWorkers(), report=reports.append)
    assert result == [{"twice": 2, "seed": 0}]
    ((identity, record),) = reports[0].known.items()
    assert identity == record.identity == tasks(1)[0].identity
    assert reports == [Progress(done=1, running=0, remaining=0, known=reports[0].known)]


# ---- used tasks ---------------------------------------------------------------------------------


class RecordingDict(dict):
    """Records that remember which of them were read and present."""

    def __init__(self, records):
        super().__init__(records)
        self.read = set()

    def get(self, identity, default=None):
        if identity in self:
            self.read.add(identity)
        return super().get(identity, default)

    def __getitem__(self, identity):
        self.read.add(identity)
        return super().__getitem__(identity)


def searches():
    problems = [
        TransformerCapacityProblem(Shape(dim, 2, 4, dim), protocol="quick") for dim in (16, 8)
    ]
    return CapacitySearches(problems, [0, 1])


MEASUREMENTS = {
    "independent tasks": lambda: independent_tasks(3, 1, 2),
    "group": lambda: MeasurementGroup({"a": independent_tasks(1, 2), "b": Chain(1)}),
    "chain": lambda: Chain(3),
    "unstored tasks": lambda: uncached_tasks(double, [0, 1], number=5),
    "searches": searches,
    "limited searches": lambda: LimitedCapacitySearches(searches()),
    "nested groups": lambda: MeasurementGroup({"c": MeasurementGroup({"d": searches()})}),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_used_tasks_are_those_whose_records_the_result_reads(name, monkeypatch):
    train_by_law(monkeypatch)
    measurement = MEASUREMENTS[name]()
    known = run_all(measurement)
    extra = records(*tasks(77))
    reading = RecordingDict(known | extra)
    measurement.result(reading)
    used = [task.identity for task in measurement.used_tasks(known | extra)]
    assert set(used) == reading.read
    assert len(set(used)) == len(used)
    assert set(used) <= set(known)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_used_tasks_are_enough_for_the_result(name, monkeypatch):
    train_by_law(monkeypatch)
    measurement = MEASUREMENTS[name]()
    known = run_all(measurement)
    used = {task.identity: known[task.identity] for task in measurement.used_tasks(known)}
    assert not measurement.pending(used).needed
    assert measurement.result(used) == measurement.result(known)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_tasks_are_used_before_they_are_known(name, monkeypatch):
    """A search has not tried a size before it is known; others use tasks that are determined."""
    train_by_law(monkeypatch)
    measurement = MEASUREMENTS[name]()
    used = {task.identity for task in measurement.used_tasks({})}
    needed = {task.identity for task in measurement.pending({}).needed}
    assert used == (set() if "search" in name or "nested" in name else needed)


def test_unique_tasks_occur_once_in_order():
    parts = [independent_tasks(3, 1), independent_tasks(1, 2), independent_tasks(3)]
    assert [task.config["number"] for task in unique_tasks(parts, {})] == [3, 1, 2]
