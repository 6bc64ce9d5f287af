"""Capacity problems of linear and MLP memories, and their measurements."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.experiments import (
    BuiltMemory,
    FastSearch,
    LinearCapacityProblem,
    MemorySpec,
    MLPCapacityProblem,
    PaperSearch,
    execute,
    memory_spec,
    trace_search,
)
from factmem.experiments.memory_capacity import measure_memory
from factmem.memories import hebbian


@cache
def measured(problem, size, seed=0):
    return execute(problem.task(size, seed))


def test_the_capacity_of_a_matrix_is_exact():
    # At d = 5 the largest memory that exists has margins that survive rounding to 16 bits.
    # Associations of more facts include those of fewer, so feasibility can only fall.
    problem = LinearCapacityProblem(dim=5)
    search = problem.search("fast")
    trace = trace_search(search, lambda size: problem.verdict(measured(problem, size)))
    bracket = trace.bracket
    assert bracket.upper == bracket.lower + 1
    for size in range(1, bracket.upper + 4):
        if size in trace.sizes:
            metrics = measured(problem, size).metrics
        else:  # without compiling the tests of the memory
            metrics = problem.spec(size, 0).run().metrics
        assert metrics["feasible"] is (size <= bracket.lower)


def test_more_associations_start_with_fewer():
    spec = MemorySpec(method="optimal", dim=4, facts=5, seed=3)
    fewer, more = (replace(spec, facts=facts).draw().associations for facts in (5, 9))
    assert np.array_equal(fewer.keys, more.keys[:5])
    assert np.array_equal(fewer.values, more.values[:5])


def test_a_measurement_runs_the_spec_of_the_problem():
    problem = LinearCapacityProblem(dim=6)
    metrics = measured(problem, 12, 4).metrics
    result = MemorySpec(method="optimal", dim=6, facts=12, seed=4).run()
    score = result.model.score(result.instance.associations)
    assert problem.spec(12, 4) == MemorySpec(method="optimal", dim=6, facts=12, seed=4)
    assert metrics["stored"] is True
    assert metrics["verdict"] == "feasible"
    assert metrics["min_relative_margin"] == score.min_relative_margin
    assert (metrics["facts"], metrics["outputs"], metrics["parameters"]) == (12, 12, 36)


def test_too_many_associations_are_proved_not_to_be_stored():
    metrics = measured(LinearCapacityProblem(dim=6), 40).metrics
    assert metrics["stored"] is False
    assert metrics["verdict"] == "infeasible"
    assert metrics["certificate_residual"] < metrics["certificate_threshold"]


def test_a_size_is_undecided_if_neither_is_proved(monkeypatch):
    def build(method, associations, **_):
        details = {"verdict": "undecided", "feasible": None}
        return BuiltMemory(model=hebbian(associations), details=details)

    monkeypatch.setattr(memory_spec, "build_memory", build)
    problem = LinearCapacityProblem(dim=6)
    assert execute(problem.task(40, 0)).metrics["stored"] is None
    # A criterion below 1 is always decided.
    lenient = replace(problem, criterion=0.99)
    assert execute(lenient.task(40, 0)).metrics["stored"] is False


def test_training_counts_the_best_check_and_stops_at_the_criterion():
    task = LinearCapacityProblem(dim=8, method="trained", criterion=0.9).task(14, 0)
    assert task.config["protocol"]["criterion"] == 0.9
    assert task.config["protocol"]["learning_rate"] == 1000
    metrics = execute(task).metrics
    assert metrics["stored"] is True
    assert metrics["best_accuracy"] >= 0.9
    assert metrics["steps"] < task.config["protocol"]["steps"]


def test_training_that_ends_below_the_criterion_stores_nothing():
    config = dict(LinearCapacityProblem(dim=4, method="trained", criterion=0.99).task(60, 0).config)
    config["protocol"] = {**config["protocol"], "steps": 64, "evaluations": 2}
    metrics = measure_memory(**config)
    assert metrics["stored"] is False
    assert metrics["best_accuracy"] < 0.99


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("method", ["fitted", "trained"])
def test_mlp_memories(method, outputs):
    problem = MLPCapacityProblem(dim=6, width=8, method=method, outputs=outputs)
    task = problem.task(9, 1)
    assert task.config["outputs"] == (outputs or 9)
    if method == "trained":
        protocol = {**task.config["protocol"], "steps": 512, "evaluations": 16}
        metrics = measure_memory(**{**task.config, "protocol": protocol})
    else:
        metrics = execute(task).metrics
        assert metrics["stored"] is True
        assert metrics["accuracy_16_bits"] == 1
    assert metrics["parameters"] == problem.parameters == 2 * 6 * 8 + 8 * (method == "trained")


@pytest.mark.parametrize("dim", [16, 64, 256])
def test_guesses_follow_the_laws_of_the_paper(dim):
    guess = LinearCapacityProblem(dim).search("fast").guess
    assert guess * math.log(guess) == pytest.approx(0.9 * dim**2, rel=0.05)
    guess = LinearCapacityProblem(dim, "trained", 0.99).search("fast").guess
    assert guess * math.log(guess) == pytest.approx(dim**2 / 1.3, rel=0.05)
    guess = MLPCapacityProblem(dim, 2 * dim).search("fast").guess
    assert 0.35 * guess * math.log(guess) == pytest.approx(2 * dim**2, rel=0.05)
    guess = MLPCapacityProblem(dim, dim, outputs=32).search("fast").guess
    assert 1.2 * guess == pytest.approx(dim**2, rel=0.05)


def test_the_warm_start_ratio_scales_the_guess():
    problem = LinearCapacityProblem(10)
    assert problem.expected_facts == pytest.approx(100 * problem.expected_facts_per_parameter)
    for facts in (11, 37, 90):
        assert problem.search("fast", facts / problem.expected_facts).guess == facts


def test_similar_warm_start_ratios_give_the_same_guess():
    """Guesses are powers of the ratio: 1.15^27 = 43.5 and 1.15^28 = 50.1 are neighbors."""
    problem = LinearCapacityProblem(10, ratio=1.15)
    guesses = {n: problem.search("fast", n / problem.expected_facts).guess for n in range(41, 54)}
    assert {guesses[n] for n in range(41, 47)} == {44}
    assert {guesses[n] for n in range(47, 54)} == {50}


def test_the_ranges_of_the_paper():
    assert LinearCapacityProblem(64).search("paper") == PaperSearch(64, 2048, 1.01)
    assert MLPCapacityProblem(16, 32).search("paper") == PaperSearch(16, 512, 1.01)
    assert LinearCapacityProblem(1).search("paper") == PaperSearch(1, 2, 1.01)


def test_the_smallest_shapes_can_be_searched():
    assert LinearCapacityProblem(1).search("fast") == FastSearch(2, 1.01, 1.04)
    assert MLPCapacityProblem(1, 1).search("fast").guess >= 1


def test_a_failed_measurement_is_undecided():
    record = measured(LinearCapacityProblem(dim=6), 40)
    failed = replace(record, metrics=None, error="it broke")
    assert LinearCapacityProblem.verdict(failed).value == "undecided"


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearCapacityProblem(0),
        lambda: LinearCapacityProblem(4, criterion=0.0),
        lambda: LinearCapacityProblem(4, criterion=1.5),
        lambda: MLPCapacityProblem(4, 0),
        lambda: MLPCapacityProblem(4, 4, outputs=1),
        lambda: MLPCapacityProblem(4, 4, criterion=float("nan")),
    ],
)
def test_rejects_values_out_of_range(make):
    with pytest.raises(FactmemError):
        make()
