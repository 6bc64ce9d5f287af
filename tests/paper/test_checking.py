"""Which measurement a claim rests on, and where its runs come from."""

import pytest
from tests.paper.here import checked

from factmem.experiments import Experiment, Store, Task
from factmem.experiments.measurement import MeasurementGroup, IndependentTasks, unstored_tasks,complete_records
from factmem.paper import Claim, Finding, Verdict
from factmem.paper.claim import between


def double(*, number, seed):
    double.calls += 1
    return {"twice": 2 * number}


double.calls = 0


def fail(*, seed):
    raise ZeroDivisionError("deep inside")


KEPT = Experiment("double", 1, double)


def slow(*numbers):
    return IndependentTasks(tuple(Task(KEPT, {"number": number, "seed": 0}) for number in numbers))


def a_claim(**options):
    def judge(results):
        return Finding.of([between("sum", float(sum(r["twice"] for r in results)), 0)])

    given = {"measured": unstored_tasks(double, [0], number=1), "judge": judge, **options}
    return Claim("it", "It is so.", "nowhere", "by doubling", **given)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as kept:
        yield kept


def test_what_checks_the_code_is_measured_every_time(store):
    before = double.calls
    for _ in range(2):
        found = checked(a_claim(), store)
        assert found.finding.checks[0].measured == 2
        assert (found.runs, found.read, found.at_length) == (1, 0, False)
    assert double.calls == before + 2


def test_a_slow_measurement_is_taken_where_the_store_has_all_of_it(store):
    claim = a_claim(at_length=slow(10, 20))
    assert not checked(claim, store).at_length
    assert checked(a_claim(measured=slow(10)), store).read == 0
    assert not checked(claim, store).at_length, "one of two is there"
    whole = checked(claim, store, at_length=True)
    assert (whole.at_length, whole.runs, whole.read) == (True, 2, 1)
    assert whole.finding.checks[0].measured == 60
    again = checked(claim, store)
    assert (again.at_length, again.read) == (True, 2)


def test_fresh_ignores_the_store(store):
    claim = a_claim(at_length=slow(10))
    checked(claim, store, at_length=True)
    assert checked(claim, store).at_length
    assert not checked(claim, store, fresh=True).at_length
    assert checked(claim, store, fresh=True, at_length=True).read == 0


def test_a_run_that_fails_leaves_no_verdict(store):
    found = checked(a_claim(measured=unstored_tasks(fail, [0])), store)
    assert found.finding.verdict is Verdict.NOT_CHECKABLE
    assert "deep inside" in found.finding.note
    assert not found.as_expected


def test_what_cannot_be_judged_does_not_hold(store):
    def judge(results):
        return Finding.of([between("sum", results[0]["missing"], 0)])

    found = checked(a_claim(judge=judge), store)
    assert found.finding.verdict is Verdict.FAILS
    assert "KeyError" in found.finding.note


def test_a_number_that_is_missing_does_not_hold(store):
    found = checked(a_claim(judge=lambda _: Finding.of([between("sum", None, 0)])), store)
    assert found.finding.verdict is Verdict.FAILS


def test_runs_that_failed_are_no_measurement(store):
    flaky = IndependentTasks((Task(Experiment("fail", 1, fail), {"seed": 0}),))
    assert checked(a_claim(measured=flaky), store).finding.verdict is Verdict.NOT_CHECKABLE
    assert complete_records(flaky, store) is None
    assert not checked(a_claim(at_length=flaky), store).at_length
    refuted = checked(a_claim(measured=flaky, refuted=True), store)
    assert not refuted.as_expected


def test_what_is_refuted_should_fail(store):
    def judge(results):
        return Finding.of([between("sum", -1.0, 0)])

    assert not checked(a_claim(judge=judge), store).as_expected
    assert checked(a_claim(judge=judge, refuted=True), store).as_expected
    assert not checked(a_claim(refuted=True), store).as_expected


def test_several_measurements_at_once(store):
    both = MeasurementGroup({"a": slow(1, 2), "b": unstored_tasks(double, [0, 1], number=5)})

    def judge(results):
        assert [r["twice"] for r in results["a"]] == [2, 4]
        assert [r["twice"] for r in results["b"]] == [10, 10]
        return Finding.of([between("it", 1.0, 0)])

    found = checked(a_claim(measured=both, judge=judge), store)
    assert found.finding.verdict is Verdict.HOLDS
    assert (found.runs, found.seeds) == (4, (0, 1))
    assert complete_records(both, store) is None, "direct runs are never kept"
    assert len(complete_records(both.parts["a"], store)) == 2
