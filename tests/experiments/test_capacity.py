"""Every seed has its own search, and the result does not depend on the workers."""

import random
from dataclasses import replace

import pytest
from tests.experiments.inline_workers import InlineWorkers
from tests.experiments.sample_tasks import (
    DIMS,
    FAIL,
    SEEDS,
    SampleProblem,
    brackets,
    true_capacity,
)

from factmem._core.errors import FactmemError
from factmem.experiments import (
    Bracket,
    Capacity,
    CapacitySearches,
    LinearCapacityProblem,
    SearchStatus,
    Store,
    Task,
    find_capacities,
    find_capacity,
)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        yield store


@pytest.fixture
def problem(tmp_path):
    return SampleProblem(20, str(tmp_path / "log"))


class ShufflingWorkers(InlineWorkers):
    """Workers that finish tasks in random order."""

    def __init__(self, count, seed):
        super().__init__(count, immediate=False)
        self.random = random.Random(seed)

    def finish_some(self, _):
        running = [future for future in self.running if not future.done()]
        count = self.random.randint(1, len(running)) if running else 0
        for future in self.random.sample(running, count):
            self.finish(future)


def test_every_seed_has_its_own_bracket_and_the_median_counts(problem, store):
    capacity = find_capacity(problem, range(4), store, InlineWorkers())
    assert [seed.seed for seed in capacity.seeds] == [0, 1, 2, 3]
    for seed in capacity.seeds:
        limit = true_capacity(20, seed.seed)
        assert seed.bracket == Bracket(limit, limit + 1)
        assert seed.status is SearchStatus.BRACKETED
        assert seed.largest.config["size"] == limit
        assert {size: record.config["size"] for size, record in seed.probes.items()} == {
            size: size for size in seed.probes
        }
    # 80, 87, 94 and 101: the smaller of the two in the middle.
    assert capacity.facts == 87
    assert capacity.median.seed == 1


def test_the_median_of_three_seeds(problem, store):
    capacity = find_capacity(problem, range(3), store, InlineWorkers())
    assert capacity.median.seed == 1


@pytest.mark.parametrize("count", [1, 2, 5, 17])
def test_the_result_depends_neither_on_workers_nor_on_order(problem, store, tmp_path, count):
    workers = ShufflingWorkers(count, seed=count)
    problems = [replace(problem, dim=dim) for dim in DIMS[:2]]
    seeds = SEEDS[:3]
    capacities = find_capacities(problems, seeds, store, workers, report=workers.finish_some)
    with Store(tmp_path / "other.sqlite") as other:
        sequential = find_capacities(problems, seeds, other, InlineWorkers(1))
    assert brackets(capacities) == brackets(sequential)
    assert [s.probes.keys() for c in capacities for s in c.seeds] == [
        s.probes.keys() for c in sequential for s in c.seeds
    ]


def test_one_worker_executes_only_needed_tasks(problem, store):
    workers = InlineWorkers(1, immediate=False)
    capacity = find_capacity(problem, [0], store, workers, report=lambda _: workers.finish_oldest())
    assert [config["size"] for config in workers.submitted] == list(capacity.seeds[0].probes)


def test_the_guess_follows_from_the_last_shape(problem, store):
    problems = [replace(problem, dim=dim) for dim in (10, 30)]
    small, large = find_capacities(problems, [0], store, InlineWorkers())
    # 20 of 100 were stored, so the guess is 180 of 900, and not the usual share of 0.3.
    assert next(iter(small.seeds[0].probes)) == 30
    assert next(iter(large.seeds[0].probes)) == 180
    assert large.seeds[0].bracket == Bracket(180, 181)


def test_the_paper_search_bisects(problem, store):
    capacity = find_capacity(problem, [0], store, InlineWorkers(), search="paper")
    assert list(capacity.seeds[0].probes)[:3] == [200, 100, 50]
    assert capacity.facts == 80


def test_stored_results_are_read(problem, store):
    first = find_capacity(problem, range(2), store, InlineWorkers())
    workers = InlineWorkers()
    again = find_capacity(problem, range(3), store, workers)
    assert {config["seed"] for config in workers.submitted} == {2}
    sources = [[r.from_store for r in seed.probes.values()] for seed in again.seeds]
    assert all(sources[0])
    assert all(sources[1])
    assert not any(sources[2])
    assert again.seeds[:2] == first.seeds


def test_a_failed_measurement_leaves_its_size_undecided(problem, store):
    class FailingProblem(SampleProblem):
        def task(self, size, seed):
            if size == 81:
                return Task(FAIL, {"kind": "error", "seed": seed})
            return super().task(size, seed)

    capacity = find_capacity(FailingProblem(20, problem.log), [0], store, InlineWorkers(1))
    assert capacity.seeds[0].bracket == Bracket(80, 81, undecided=True)
    assert capacity.seeds[0].probes[81].error == "ZeroDivisionError: deep inside"


def test_progress_has_the_bracket_of_every_seed(problem, store):
    reports = []
    find_capacity(problem, range(2), store, InlineWorkers(2), report=reports.append)
    assert reports[0].brackets == (Bracket(), Bracket())
    assert reports[-1].done >= 6
    assert all(report.running + report.remaining > 0 for report in reports[:-1])
    assert (reports[-1].running, reports[-1].remaining) == (0, 0)
    ends = [report.brackets[0] for report in reports]
    assert any(bracket.lower is not None for bracket in ends)


def test_the_capacity_is_zero_if_no_size_is_stored(problem, store):
    (seed,) = find_capacity(problem, [0], store, InlineWorkers()).seeds
    seed = replace(seed, bracket=Bracket(None, 1))
    assert Capacity(problem, (seed,)).facts == 0
    assert seed.largest is None


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_rejects_missing_and_repeated_seeds(problem, store, seeds):
    with pytest.raises(FactmemError, match="seeds must be distinct and not empty, got "):
        find_capacity(problem, seeds, store, InlineWorkers())


def test_searches_create_each_task_once(monkeypatch):
    problem, created = LinearCapacityProblem(8), []
    create = LinearCapacityProblem.task
    monkeypatch.setattr(
        LinearCapacityProblem,
        "task",
        lambda self, size, seed: created.append((size, seed)) or create(self, size, seed),
    )
    searches = CapacitySearches([problem], [0, 1])
    first = searches.pending({})
    again = searches.pending({})
    assert [task.identity for task in first.needed] == [task.identity for task in again.needed]
    assert len(created) == len(set(created)) > 0


def test_unfinished_searches_have_the_result_of_shapes_that_all_seeds_finished(problem, store):
    problems = [replace(problem, dim=dim) for dim in (20, 30, 40)]
    searches = CapacitySearches(problems, range(2))
    find_capacities(problems, range(2), store, InlineWorkers())
    everything = {record.identity: record for record in store.records()}
    assert len(searches.result(everything)) == 3
    assert searches.result({}) == []
    missing = [r for r in everything.values() if r.config["dim"] == 30 and r.seed == 1]
    known = {identity: r for identity, r in everything.items() if r not in missing}
    assert searches.result(known) == searches.result(everything)[:1]
