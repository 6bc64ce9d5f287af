"""How long figures will take, against lines and sums that are known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.paper.here import Here
from tests.paper.made import known_of, record, trained_by_law

from factmem.experiments import (
    LimitedCapacitySearches,
    Experiment,
    LinearCapacityProblem,
    MeasurementGroup,
    IndependentTasks,
    CapacitySearches,
    Store,
    Task,
    TransformerCapacityProblem,
)
from factmem.experiments import memory_capacity as memory_questions
from factmem.experiments.measurement import stored_records
from factmem.paper import Figures, PaperFigure, all_figures, estimate
from factmem.experiments.estimate import Speed, expected_seconds, measured_speed

FREE = Speed(step=0.0, flops=math.inf, compiling=0.0)
USUAL = Speed(step=1e-3, flops=1e10, compiling=5.0)


def timed(step, flops, compiling, small=1e6, large=5e7):
    def of(work):
        return {"compiling": compiling, "step": step + work / flops, "flops": work}

    return {"small": of(small), "large": of(large)}


@given(st.floats(1e-5, 1e-2), st.floats(1e8, 1e12), st.floats(0, 30))
def test_the_line_through_both_trainings_is_found(step, flops, compiling):
    found = estimate._speed([timed(step, flops, compiling)])
    assert found.step == pytest.approx(step, rel=1e-3, abs=1e-9)
    assert found.flops == pytest.approx(flops, rel=1e-3)
    assert found.compiling == pytest.approx(compiling)


def test_workers_are_averaged():
    found = estimate._speed([timed(1e-3, 1e9, 2.0), timed(3e-3, 1e9, 4.0)])
    assert found.step == pytest.approx(2e-3)
    assert found.flops == pytest.approx(1e9)
    assert found.compiling == pytest.approx(3)


def test_a_large_training_that_was_faster_costs_no_time_below_nothing():
    odd = {
        "small": {"compiling": 1.0, "step": 2e-3, "flops": 1e6},
        "large": {"compiling": 1.0, "step": 1e-3, "flops": 5e7},
    }
    found = estimate._speed([odd])
    assert found.step >= 0
    assert found.flops > 0


def constant_speed(*, steps, seed):
    return timed(1e-3 * (1 + seed), 1e9, 2.0)


def test_every_worker_is_timed_at_once(monkeypatch, tmp_path):
    class Two(Here):
        def free(self):
            return 2

    monkeypatch.setattr(estimate, "measure_speed", constant_speed)
    with Store(tmp_path / "runs.sqlite") as store:
        found = measured_speed(store, Two(), steps=4)
        assert store.records() == [], "speeds are never kept"
    assert found.step == pytest.approx(1.5e-3), "of seeds 0 and 1"


# ---- what is expected ----------------------------------------------------------------------------


def one(*, number):
    return {"one": number}


OTHER = Experiment("other", 1, one)


def runs(*numbers):
    return IndependentTasks(tuple(Task(OTHER, {"number": number}) for number in numbers))


def test_expected_time_falls_to_nothing_as_runs_become_known():
    three = runs(1, 2, 3)
    known, found = {}, []
    for task in three.tasks:
        found.append(expected_seconds(three, known, USUAL))
        known[task.identity] = record(task)
    assert found == [30, 20, 10]
    assert expected_seconds(three, known, USUAL) == 0


def test_what_is_measured_together_adds_up():
    both = MeasurementGroup({"a": runs(1), "b": runs(2, 3)})
    assert expected_seconds(both, {}, USUAL) == 30
    assert expected_seconds(MeasurementGroup({}), {}, USUAL) == 0
    nested = MeasurementGroup({"c": both, "d": runs(4)})
    assert expected_seconds(nested, {}, USUAL) == 40
    figures = [PaperFigure(str(k), "t", "t", each, lambda _: None)
               for k, each in enumerate((nested, runs(5)))]  # fmt: skip
    assert expected_seconds(Figures(figures), {}, USUAL) == 50


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_every_figure_takes_some_time_and_all_of_them_the_sum(scale):
    figures = all_figures(scale)
    each = [expected_seconds(figure.measured, {}, USUAL) for figure in figures]
    assert min(each) > 0
    assert expected_seconds(Figures(figures), {}, USUAL) == pytest.approx(sum(each))


def paper(dim, protocol="paper"):
    return TransformerCapacityProblem(Shape(dim, 8, dim // 8, dim), protocol=protocol)


def test_steps_of_a_transformer_worked_by_hand():
    """3.5 tries of 3 rates of 2^14 steps, of which 45 % are made, at a millisecond each."""
    steps_alone = Speed(step=1e-3, flops=math.inf, compiling=0.0)
    found = expected_seconds(CapacitySearches([paper(32)], [64]), {}, steps_alone)
    assert found == pytest.approx(3.5 * 0.45 * 3 * 2**14 * 1e-3)
    compiling_alone = Speed(step=0.0, flops=math.inf, compiling=2.0)
    assert expected_seconds(CapacitySearches([paper(32)], [64]), {}, compiling_alone) == 3.5 * 2
    assert expected_seconds(CapacitySearches([paper(32)], [64]), {}, FREE) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: [paper(16), paper(32)],
        lambda: [LinearCapacityProblem(8, "trained", 0.99), LinearCapacityProblem(8)],
        lambda: [paper(16, "compiled")],
    ],
    ids=["transformers", "memories", "compiled"],
)
def test_more_seeds_and_slower_machines_take_longer(make):
    questions = make()
    alone = expected_seconds(CapacitySearches(questions, [0]), {}, USUAL)
    assert alone > 0
    assert expected_seconds(CapacitySearches(questions, [0, 1, 2]), {}, USUAL) == pytest.approx(3 * alone)
    slower = Speed(2 * USUAL.step, USUAL.flops / 2, 2 * USUAL.compiling)
    assert expected_seconds(CapacitySearches(questions, [0]), {}, slower) == pytest.approx(2 * alone)


def test_larger_shapes_take_longer():
    small, large = (expected_seconds(CapacitySearches([paper(d)], [0]), {}, USUAL) for d in (16, 64))
    assert large > small


@settings(max_examples=5)
@given(st.integers(2, 6))
def test_searches_that_are_over_cost_nothing_more(dim):
    def stored(*, dim, facts, **_):
        return {"stored": facts <= dim**2 / 3}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_questions, "EXPERIMENT", Experiment("memory", 1, stored))
        both = CapacitySearches(
            [LinearCapacityProblem(dim, ratio=1.3), LinearCapacityProblem(2 * dim, ratio=1.3)], [0]
        )
        first = CapacitySearches(both.problems[:1], [0])
        second = CapacitySearches(both.problems[1:], [0])
        whole = expected_seconds(both, {}, USUAL)
        known = known_of(first)
        assert expected_seconds(both, known, USUAL) == pytest.approx(
            expected_seconds(second, {}, USUAL)
        )
        assert 0 < expected_seconds(both, known, USUAL) < whole
        assert expected_seconds(both, known_of(both), USUAL) == 0


def test_limits_of_embeddings_cost_what_their_searches_do(monkeypatch):
    trained_by_law(monkeypatch)
    searches = CapacitySearches([paper(16)], [0])
    limited = LimitedCapacitySearches(searches)
    assert expected_seconds(limited, {}, USUAL) == expected_seconds(searches, {}, USUAL)
    assert expected_seconds(limited, known_of(limited), USUAL) == 0


# ---- what a store has ----------------------------------------------------------------------------


def test_a_search_goes_on_from_what_the_store_has(monkeypatch, tmp_path):
    trained_by_law(monkeypatch)
    searches = CapacitySearches([paper(16), paper(32)], [0])
    known = known_of(searches)
    with Store(tmp_path / "runs.sqlite") as store:
        for each in known.values():
            store.put(each)
        found = stored_records(searches, store)
    assert all(found[identity] == each for identity, each in known.items())
    assert expected_seconds(searches, found, USUAL) == 0
