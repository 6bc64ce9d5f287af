"""Time estimates, compared with known lines and sums."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.experiments.inline_workers import InlineWorkers
from tests.paper.stand_ins import make_record, run_all, train_by_law

from factmem.experiments import (
    CapacitySearches,
    Cost,
    Experiment,
    IndependentTasks,
    LimitedCapacitySearches,
    LinearCapacityProblem,
    MeasurementGroup,
    MLPCapacityProblem,
    Store,
    Task,
    TransformerCapacityProblem,
    estimate,
    memory_capacity,
)
from factmem.experiments.estimate import Speed, expected_seconds, measure_speed
from factmem.experiments.measurement import stored_records
from factmem.paper import FigureGroup, PaperFigure, all_figures
from factmem.transformer import Shape

FREE = Speed(step_seconds=0.0, flops_per_second=math.inf, compile_seconds=0.0)
TYPICAL = Speed(step_seconds=1e-3, flops_per_second=1e10, compile_seconds=5.0)


def timings(step, flops_per_second, compile_seconds, small=1e6, large=5e7):
    """Return what `time_training_steps` returns on a machine of this speed."""

    def timing(flops):
        seconds = step + flops / flops_per_second
        return {"compile": compile_seconds, "step": seconds, "flops": flops}

    return {"small": timing(small), "large": timing(large)}


@given(st.floats(1e-5, 1e-2), st.floats(1e8, 1e12), st.floats(0, 30))
def test_the_speed_is_the_line_through_both_trainings(step, flops, compile_seconds):
    speed = estimate._fit_speed([timings(step, flops, compile_seconds)])
    assert speed.step_seconds == pytest.approx(step, rel=1e-3, abs=1e-9)
    assert speed.flops_per_second == pytest.approx(flops, rel=1e-3)
    assert speed.compile_seconds == pytest.approx(compile_seconds)


def test_workers_are_averaged():
    speed = estimate._fit_speed([timings(1e-3, 1e9, 2.0), timings(3e-3, 1e9, 4.0)])
    assert speed.step_seconds == pytest.approx(2e-3)
    assert speed.flops_per_second == pytest.approx(1e9)
    assert speed.compile_seconds == pytest.approx(3)


def test_no_time_is_negative_if_the_large_training_was_faster():
    contradictory = {
        "small": {"compile": 1.0, "step": 2e-3, "flops": 1e6},
        "large": {"compile": 1.0, "step": 1e-3, "flops": 5e7},
    }
    speed = estimate._fit_speed([contradictory])
    assert speed.step_seconds >= 0
    assert speed.flops_per_second > 0


def fixed_speed(*, steps, seed):
    return timings(1e-3 * (1 + seed), 1e9, 2.0)


def test_every_worker_is_timed_at_once(monkeypatch, tmp_path):
    class TwoWorkers(InlineWorkers):
        def free(self):
            return 2

    monkeypatch.setattr(estimate, "time_training_steps", fixed_speed)
    with Store(tmp_path / "runs.sqlite") as store:
        speed = measure_speed(store, TwoWorkers(), steps=4)
        assert store.records() == [], "speeds are never stored"
    assert speed.step_seconds == pytest.approx(1.5e-3), "the mean of seeds 0 and 1"


def test_the_speed_gives_the_time_of_a_cost():
    cost = Cost(steps=10.0, flops_per_step=2e7, peak_bytes=0)
    assert TYPICAL.seconds(cost) == pytest.approx(5 + 10 * (1e-3 + 2e-3))
    quarter = Cost(steps=10.0, flops_per_step=2e7, peak_bytes=0, overhead=0.25)
    assert TYPICAL.seconds(quarter) == pytest.approx(0.25 * 5 + 10 * (0.25e-3 + 2e-3))
    assert cost.flops == 2e8


# ---- expected times -----------------------------------------------------------------------------


def return_number(*, number):
    return {"number": number}


OTHER = Experiment("other", 1, return_number)


def independent_tasks(*numbers):
    return IndependentTasks(tuple(Task(OTHER, {"number": number}) for number in numbers))


def test_the_expected_time_falls_to_zero_as_records_become_known():
    measurement = independent_tasks(1, 2, 3)
    known, seconds = {}, []
    for task in measurement.tasks:
        seconds.append(expected_seconds(measurement, known, TYPICAL))
        known[task.identity] = make_record(task)
    assert seconds == [30, 20, 10]
    assert expected_seconds(measurement, known, TYPICAL) == 0


def test_the_times_of_a_group_add_up():
    both = MeasurementGroup({"a": independent_tasks(1), "b": independent_tasks(2, 3)})
    assert expected_seconds(both, {}, TYPICAL) == 30
    assert expected_seconds(MeasurementGroup({}), {}, TYPICAL) == 0
    nested = MeasurementGroup({"c": both, "d": independent_tasks(4)})
    assert expected_seconds(nested, {}, TYPICAL) == 40
    figures = [
        PaperFigure(str(number), "title", "text", measurement, lambda _: None)
        for number, measurement in enumerate((nested, independent_tasks(5)))
    ]
    assert expected_seconds(FigureGroup(figures), {}, TYPICAL) == 50


class UnknownMeasurement:
    pending = result = used_tasks = remaining = len  # any function


def test_rejects_an_unknown_kind_of_measurement():
    with pytest.raises(TypeError, match="cannot estimate the time of a UnknownMeasurement"):
        expected_seconds(UnknownMeasurement(), {}, TYPICAL)


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_the_times_of_all_figures_add_up(scale):
    figures = all_figures(scale)
    seconds = [expected_seconds(figure.measurement, {}, TYPICAL) for figure in figures]
    assert min(seconds) > 0
    assert expected_seconds(FigureGroup(figures), {}, TYPICAL) == pytest.approx(sum(seconds))


def problem(dim, protocol="paper"):
    return TransformerCapacityProblem(Shape(dim, 8, dim // 8, dim), protocol=protocol)


def test_the_time_of_a_transformer_search_computed_by_hand():
    """A search takes 3.5 tries of 3 rates of 2^14 steps, of which 45% are done, at 1 ms each."""
    searches = CapacitySearches([problem(32)], [64])
    only_steps = replace(FREE, step_seconds=1e-3)
    seconds = expected_seconds(searches, {}, only_steps)
    assert seconds == pytest.approx(3.5 * 0.45 * 3 * 2**14 * 1e-3)
    assert expected_seconds(searches, {}, replace(FREE, compile_seconds=2.0)) == 3.5 * 2
    assert expected_seconds(searches, {}, FREE) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: [problem(16), problem(32)],
        lambda: [LinearCapacityProblem(8, "trained", 0.99), LinearCapacityProblem(8)],
        lambda: [MLPCapacityProblem(8, 16), MLPCapacityProblem(8, 16, "quick")],
        lambda: [problem(16, "compiled"), problem(16, "quick")],
    ],
    ids=["transformers", "linear", "mlp", "other protocols"],
)
def test_more_seeds_and_slower_machines_take_longer(make):
    one_seed, three_seeds = (CapacitySearches(make(), range(count)) for count in (1, 3))
    seconds = expected_seconds(one_seed, {}, TYPICAL)
    assert seconds > 0
    assert expected_seconds(three_seeds, {}, TYPICAL) == pytest.approx(3 * seconds)
    slower = Speed(
        2 * TYPICAL.step_seconds, TYPICAL.flops_per_second / 2, 2 * TYPICAL.compile_seconds
    )
    assert expected_seconds(one_seed, {}, slower) == pytest.approx(2 * seconds)


def test_larger_shapes_take_longer():
    small, large = (
        expected_seconds(CapacitySearches([problem(dim)], [0]), {}, TYPICAL) for dim in (16, 64)
    )
    assert large > small


@settings(max_examples=5)
@given(st.integers(2, 6))
def test_finished_searches_take_no_time(dim):
    def store(*, dim, facts, **_):
        return {"stored": facts <= dim**2 / 3}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_capacity, "EXPERIMENT", Experiment("memory", 1, store))
        both = CapacitySearches(
            [LinearCapacityProblem(dim, ratio=1.3), LinearCapacityProblem(2 * dim, ratio=1.3)], [0]
        )
        first = CapacitySearches(both.problems[:1], [0])
        second = CapacitySearches(both.problems[1:], [0])
        total = expected_seconds(both, {}, TYPICAL)
        known = run_all(first)
        assert expected_seconds(both, known, TYPICAL) == pytest.approx(
            expected_seconds(second, {}, TYPICAL)
        )
        assert 0 < expected_seconds(both, known, TYPICAL) < total
        assert expected_seconds(both, run_all(both), TYPICAL) == 0


def test_limits_of_embeddings_take_no_further_time(monkeypatch):
    train_by_law(monkeypatch)
    searches = CapacitySearches([problem(16)], [0])
    limited = LimitedCapacitySearches(searches)
    assert expected_seconds(limited, {}, TYPICAL) == expected_seconds(searches, {}, TYPICAL)
    assert expected_seconds(limited, run_all(limited), TYPICAL) == 0


def test_stored_searches_take_no_time(monkeypatch, tmp_path):
    train_by_law(monkeypatch)
    searches = CapacitySearches([problem(16), problem(32)], [0])
    known = run_all(searches)
    with Store(tmp_path / "runs.sqlite") as store:
        for record in known.values():
            store.put(record)
        stored = stored_records(searches, store)
    assert all(stored[identity] == record for identity, record in known.items())
    assert expected_seconds(searches, stored, TYPICAL) == 0
