"""Every seed's own search, on any number of workers, with the same end."""

import random
from dataclasses import replace

import pytest
from tests.experiments import cheap
from tests.experiments.test_scheduler import Here

from factmem._core.errors import FactmemError
from factmem.experiments import (
    Bracket,
    Capacity,
    LinearCapacityProblem,
    Outcome,
    CapacitySearches,
    Store,
    find_capacities,
    find_capacity,
)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        yield store


@pytest.fixture
def problem(tmp_path):
    return cheap.CheapQuestion(20, str(tmp_path / "log"), 0.0)


class Shuffled(Here):
    """Ends tasks in any order."""

    def __init__(self, count, seed):
        super().__init__(count, at_once=False)
        self.random = random.Random(seed)

    def some(self, _):
        running = [future for future in self.open if not future.done()]
        for future in self.random.sample(running, self.random.randint(1, len(running))):
            self.finish(future)


def test_every_seed_has_its_own_bracket_and_the_median_counts(problem, store):
    found = find_capacity(problem, range(4), store, Here())
    assert [seed.seed for seed in found.seeds] == [0, 1, 2, 3]
    for seed in found.seeds:
        limit = cheap.limit(20, seed.seed)
        assert seed.bracket == Bracket(limit, limit + 1)
        assert seed.outcome is Outcome.FOUND
        assert seed.largest.config["size"] == limit
        assert {size: record.config["size"] for size, record in seed.probes.items()} == {
            size: size for size in seed.probes
        }
    # 80, 87, 94 and 101: of two in the middle the smaller.
    assert found.facts == 87
    assert found.median.seed == 1


def test_a_median_of_three(problem, store):
    found = find_capacity(problem, range(3), store, Here())
    assert found.median.seed == 1


@pytest.mark.parametrize("count", [1, 2, 5, 17])
def test_neither_workers_nor_order_change_the_table(problem, store, tmp_path, count):
    workers = Shuffled(count, seed=count)
    questions = [replace(problem, dim=dim) for dim in cheap.DIMS]
    found = find_capacities(questions, cheap.SEEDS, store, workers, report=workers.some)
    with Store(tmp_path / "other.sqlite") as other:
        alone = find_capacities(questions, cheap.SEEDS, other, Here(1))
    assert cheap.table(found) == cheap.table(alone)
    assert [s.probes.keys() for c in found for s in c.seeds] == [
        s.probes.keys() for c in alone for s in c.seeds
    ]


def test_one_worker_does_nothing_but_what_is_needed(problem, store):
    workers = Here(1, at_once=False)
    found = find_capacity(problem, [0], store, workers, report=lambda _: workers.finish_one())
    assert [config["size"] for config in workers.submitted] == list(found.seeds[0].probes)


def test_a_sweep_begins_where_the_last_shape_ended(problem, store):
    questions = [replace(problem, dim=dim) for dim in (10, 30)]
    small, large = find_capacities(questions, [0], store, Here())
    # 20 of 100 were stored, so 180 of 900 are the guess, not the usual 0.3 of them.
    assert next(iter(small.seeds[0].probes)) == 30
    assert next(iter(large.seeds[0].probes)) == 180
    assert large.seeds[0].bracket == Bracket(180, 181)


def test_the_search_of_the_authors(problem, store):
    found = find_capacity(problem, [0], store, Here(), search="paper")
    assert list(found.seeds[0].probes)[:3] == [200, 100, 50]
    assert found.facts == 80


def test_what_is_there_is_read(problem, store):
    first = find_capacity(problem, range(2), store, Here())
    workers = Here()
    again = find_capacity(problem, range(3), store, workers)
    assert {config["seed"] for config in workers.submitted} == {2}
    sources = [[r.kept for r in seed.probes.values()] for seed in again.seeds]
    assert all(sources[0])
    assert all(sources[1])
    assert not any(sources[2])
    assert again.seeds[:2] == first.seeds


def test_a_probe_that_fails_leaves_its_size_undecided(problem, store, monkeypatch):
    class Failing(cheap.CheapQuestion):
        def task(self, size, seed):
            if size == 81:
                return cheap.Task(cheap.FAIL, {"kind": "error", "seed": seed})
            return super().task(size, seed)

    found = find_capacity(Failing(20, problem.log, 0.0), [0], store, Here(1))
    assert found.seeds[0].bracket == Bracket(80, 81, undecided=True)
    assert found.seeds[0].probes[81].error == "ZeroDivisionError: deep inside"


def test_how_far_it_is(problem, store):
    reports = []
    find_capacity(problem, range(2), store, Here(2), report=reports.append)
    assert reports[0].brackets == (Bracket(), Bracket())
    assert reports[-1].done >= 6
    assert all(report.running + report.left > 0 for report in reports)
    ends = [report.brackets[0] for report in reports]
    assert any(bracket.lower is not None for bracket in ends)


def test_nothing_stored_is_no_facts(problem, store):
    seed = replace(find_capacity(problem, [0], store, Here()).seeds[0], bracket=Bracket(None, 1))
    assert Capacity(problem, (seed,)).facts == 0
    assert seed.largest is None


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_are_given_once_each(problem, store, seeds):
    with pytest.raises(FactmemError, match="at least one seed, and each once"):
        find_capacity(problem, seeds, store, Here())


def test_a_sweep_of_shapes_makes_each_task_once(monkeypatch):
    problem, made = LinearCapacityProblem(8), []
    right = LinearCapacityProblem.task
    monkeypatch.setattr(
        LinearCapacityProblem,
        "task",
        lambda self, size, seed: made.append((size, seed)) or right(self, size, seed),
    )
    searches = CapacitySearches([problem], [0, 1])
    first = searches.pending({})
    again = searches.pending({})
    assert [task.identity for task in first.needed] == [task.identity for task in again.needed]
    assert len(made) == len(set(made)) > 0


def test_before_they_are_over_searches_tell_of_the_shapes_that_every_seed_is_through_with(
    problem, store
):
    questions = [replace(problem, dim=dim) for dim in (20, 30, 40)]
    searches = CapacitySearches(questions, range(2))
    find_capacities(questions, range(2), store, Here())
    whole = {record.identity: record for record in store.records()}
    assert len(searches.result(whole)) == 3
    assert searches.result({}) == []
    last = [r for r in whole.values() if r.config["dim"] == 30 and r.seed == 1]
    known = {identity: record for identity, record in whole.items() if record not in last}
    assert searches.result(known) == searches.result(whole)[:1]
