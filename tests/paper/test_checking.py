"""Checking claims: which measurement is used, and where its runs come from."""

import pytest
from tests.experiments.inline_workers import InlineWorkers
from tests.paper.claim_checks import check, one_bit_per_weight, replace_memory_measurement

from factmem.experiments import CapacitySearches, Experiment, LinearCapacityProblem, Store, Task
from factmem.experiments.measurement import (
    IndependentTasks,
    MeasurementGroup,
    complete_records,
    measure,
    uncached_tasks,
)
from factmem.paper import Claim, Finding, Verdict
from factmem.paper.checking import ClaimGroup
from factmem.paper.claim import check_between


def double(*, number, seed):
    double.calls += 1
    return {"twice": 2 * number}


double.calls = 0


def fail(*, seed):
    raise ZeroDivisionError("deep inside")


DOUBLE = Experiment("double", 1, double)


def stored_tasks(*numbers):
    return IndependentTasks(
        tuple(Task(DOUBLE, {"number": number, "seed": 0}) for number in numbers)
    )


def make_claim(**fields):
    def judge(results):
        return Finding.from_checks(
            [check_between("sum", float(sum(r["twice"] for r in results)), 0)]
        )

    defaults = {"measurement": uncached_tasks(double, [0], number=1), "judge": judge}
    return Claim("it", "It is so.", "nowhere", "by doubling", **(defaults | fields))


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def test_unstored_tasks_are_executed_every_time(store):
    before = double.calls
    for _ in range(2):
        checked = check(make_claim(), store)
        assert checked.finding.checks[0].measured == 2
        assert (checked.runs, checked.runs_read, checked.scale) == (1, 0, "quick")
    assert double.calls == before + 2


def test_paper_measurement_is_used_if_the_store_has_all_of_it(store):
    claim = make_claim(paper_measurement=stored_tasks(10, 20))
    assert check(claim, store).scale == "quick"
    assert check(make_claim(measurement=stored_tasks(10)), store).runs_read == 0
    assert check(claim, store).scale == "quick", "the store has one of two runs"
    complete = check(claim, store, scale="paper")
    assert (complete.scale, complete.runs, complete.runs_read) == ("paper", 2, 1)
    assert complete.finding.checks[0].measured == 60
    again = check(claim, store)
    assert (again.scale, again.runs_read) == ("paper", 2)


def test_a_claim_without_paper_measurement_is_quick_at_both_scales(store):
    assert check(make_claim(), store, scale="paper").scale == "quick"


def test_fresh_ignores_the_store(store):
    claim = make_claim(paper_measurement=stored_tasks(10))
    check(claim, store, scale="paper")
    assert check(claim, store).scale == "paper"
    assert check(claim, store, fresh=True).scale == "quick"
    assert check(claim, store, fresh=True, scale="paper").runs_read == 0


def test_a_failed_run_is_not_checkable(store):
    checked = check(make_claim(measurement=uncached_tasks(fail, [0])), store)
    assert checked.finding.verdict is Verdict.NOT_CHECKABLE
    assert "deep inside" in checked.finding.note
    assert not checked.as_expected


def test_a_result_that_cannot_be_judged_fails(store):
    def judge(results):
        return Finding.from_checks([check_between("sum", results[0]["missing"], 0)])

    checked = check(make_claim(judge=judge), store)
    assert checked.finding.verdict is Verdict.FAILS
    assert "KeyError" in checked.finding.note


def test_a_missing_number_fails(store):
    claim = make_claim(judge=lambda _: Finding.from_checks([check_between("sum", None, 0)]))
    assert check(claim, store).finding.verdict is Verdict.FAILS


def test_failed_runs_are_not_read_from_the_store(store):
    failing = IndependentTasks((Task(Experiment("fail", 1, fail), {"seed": 0}),))
    checked = check(make_claim(measurement=failing), store)
    assert checked.finding.verdict is Verdict.NOT_CHECKABLE
    assert complete_records(failing, store) is None
    assert check(make_claim(paper_measurement=failing), store).scale == "quick"
    refuted = check(make_claim(measurement=failing, refuted=True), store)
    assert not refuted.as_expected


def test_a_refuted_claim_should_fail(store):
    def judge(results):
        return Finding.from_checks([check_between("sum", -1.0, 0)])

    assert not check(make_claim(judge=judge), store).as_expected
    assert check(make_claim(judge=judge, refuted=True), store).as_expected
    assert not check(make_claim(refuted=True), store).as_expected


def test_runs_of_a_group_of_measurements_are_counted_once(store):
    parts = {
        "a": stored_tasks(1, 2),
        "b": uncached_tasks(double, [0, 1], number=5),
        "again": stored_tasks(1),
    }

    def judge(results):
        assert [r["twice"] for r in results["a"]] == [2, 4]
        assert [r["twice"] for r in results["b"]] == [10, 10]
        return Finding.from_checks([check_between("it", 1.0, 0)])

    group = MeasurementGroup(parts)
    checked = check(make_claim(measurement=group, judge=judge), store)
    assert checked.finding.verdict is Verdict.HOLDS
    assert (checked.runs, checked.seeds) == (4, (0, 1))
    assert complete_records(group, store) is None, "unstored tasks are never stored"
    assert len(complete_records(parts["a"], store)) == 2


def test_runs_of_a_search_are_the_sizes_it_tried(monkeypatch, store):
    replace_memory_measurement(monkeypatch, one_bit_per_weight)
    searches = CapacitySearches([LinearCapacityProblem(dim) for dim in (6, 8)], [0, 3])

    def judge(capacities):
        return Finding.from_checks([check_between("it", float(len(capacities)), 2, 2)])

    for read in (False, True):
        checked = check(make_claim(measurement=searches, judge=judge), store)
        capacities = measure(searches, store, InlineWorkers())
        probes = [p for each in capacities for s in each.seeds for p in s.probes.values()]
        assert checked.runs == len(probes) > 4
        assert checked.runs_read == read * len(probes)
        assert checked.seeds == (0, 3)
        assert checked.seconds == pytest.approx(sum(record.seconds for record in probes))


def test_a_group_of_claims_shares_runs(store):
    claims = [make_claim(measurement=stored_tasks(1, 2)), make_claim(measurement=stored_tasks(2))]
    group = ClaimGroup(claims, store)
    assert len(group.pending({}).needed) == len(group.used_tasks({})) == 2
    assert group.remaining({}) == 3
