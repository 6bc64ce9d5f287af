"""Linear and MLP memories: what is asked, and what is measured."""

import math

import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.experiments import (
    FastSearch,
    LinearCapacityProblem,
    MLPCapacityProblem,
    PaperSearch,
    Record,
    execute,
    walk,
)
from factmem.experiments.memory_capacity import measure_memory
from factmem.experiments.memory_methods import build, drawn


def verdict(problem, seed=0):
    return lambda size: problem.verdict(execute(problem.task(size, seed)))


def test_the_largest_matrix_memory_is_exact():
    # At d = 5 the last that fits has margins that 16 bits keep.
    # Associations of more facts hold those of fewer, so feasibility can only fall.
    problem = LinearCapacityProblem(dim=5)
    bracket = trace_search(problem.search("fast"), verdict(problem)).bracket
    assert bracket.upper == bracket.lower + 1
    for size in range(1, bracket.upper + 4):
        pairs, key, _ = drawn(0, size, 5)
        feasible = build("maximal", key, pairs).details["feasible"]
        assert feasible is (size <= bracket.lower)


def test_more_associations_begin_with_fewer():
    few, many = drawn(3, 5, 4)[0], drawn(3, 9, 4)[0]
    assert np.array_equal(few.keys, many.keys[:5])
    assert np.array_equal(few.values, many.values[:5])


def test_a_measurement_is_the_memory_that_the_command_builds():
    found = execute(LinearCapacityProblem(dim=6).task(12, 4)).metrics
    pairs, key, _ = drawn(4, 12, 6)
    built = build("maximal", key, pairs)
    score = built.memory.score(pairs)
    assert found["stored"] is True
    assert found["verdict"] == "feasible"
    assert found["relative_margin"] == score.relative_margin
    assert (found["facts"], found["outputs"], found["parameters"]) == (12, 12, 36)


def test_too_many_are_not_stored_and_the_proof_says_so():
    found = execute(LinearCapacityProblem(dim=6).task(40, 0)).metrics
    assert found["stored"] is False
    assert found["verdict"] == "infeasible"
    assert found["certificate_residual"] < found["certificate_threshold"]


def test_what_is_neither_proved_nor_refuted_is_undecided(monkeypatch):
    from factmem.experiments import memory_methods as methods

    class Undecided:
        memory = build("hebbian", drawn(0, 40, 6)[1], drawn(0, 40, 6)[0]).memory
        details = {"verdict": "undecided", "feasible": None}  # noqa: RUF012

    monkeypatch.setattr(methods, "build", lambda *_, **__: Undecided)
    assert execute(LinearCapacityProblem(dim=6).task(40, 0)).metrics["stored"] is None
    # Of a share less than all nothing is undecided.
    assert (
        execute(LinearCapacityProblem(dim=6, criterion=0.99).task(40, 0)).metrics["stored"] is False
    )


def test_training_counts_the_best_check_and_stops_at_the_criterion():
    task = LinearCapacityProblem(dim=8, method="trained", criterion=0.9).task(14, 0)
    assert task.config["protocol"]["criterion"] == 0.9
    assert task.config["protocol"]["learning_rate"] == 1000
    found = execute(task).metrics
    assert found["stored"] is True
    assert found["best_accuracy"] >= 0.9
    assert found["steps"] < task.config["protocol"]["steps"]


def test_training_that_ends_below_the_criterion_stores_nothing():
    config = dict(LinearCapacityProblem(dim=4, method="trained", criterion=0.99).task(60, 0).config)
    config["protocol"] = {**config["protocol"], "steps": 64, "checks": 2}
    found = measure_memory(**config)
    assert found["stored"] is False
    assert found["best_accuracy"] < 0.99


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("method", ["fitted", "trained"])
def test_mlp_memories(method, outputs):
    problem = MLPCapacityProblem(dim=6, width=8, method=method, outputs=outputs)
    task = problem.task(9, 1)
    assert task.config["outputs"] == (outputs or 9)
    if method == "trained":
        protocol = {**task.config["protocol"], "steps": 512, "checks": 16}
        found = measure_memory(**{**task.config, "protocol": protocol})
    else:
        found = execute(task).metrics
        assert found["stored"] is True
        assert found["accuracy_16_bits"] == 1
    assert found["parameters"] == problem.parameters == 2 * 6 * 8 + 8 * (method == "trained")


@pytest.mark.parametrize("dim", [16, 64, 256])
def test_guesses_follow_the_law_of_the_paper(dim):
    guess = LinearCapacityProblem(dim).search("fast").guess
    assert guess * math.log(guess) == pytest.approx(0.9 * dim**2, rel=0.05)
    guess = LinearCapacityProblem(dim, "trained", 0.99).search("fast").guess
    assert guess * math.log(guess) == pytest.approx(dim**2 / 1.3, rel=0.05)
    guess = MLPCapacityProblem(dim, 2 * dim).search("fast").guess
    assert 0.35 * guess * math.log(guess) == pytest.approx(2 * dim**2, rel=0.05)
    guess = MLPCapacityProblem(dim, dim, outputs=32).search("fast").guess
    assert 1.2 * guess == pytest.approx(dim**2, rel=0.05)


def test_the_luck_of_the_last_shape_is_in_the_guess():
    problem = LinearCapacityProblem(10)
    assert problem.expected == pytest.approx(100 * problem.density)
    for facts in (11, 37, 90):
        assert problem.search("fast", facts / problem.expected).guess == facts


def test_luck_that_differs_a_little_begins_at_the_same_size():
    """The next power of the ratio: 1.15^27 = 43.5 and 1.15^28 = 50.1 are neighbors."""
    problem = LinearCapacityProblem(10, ratio=1.15)
    guesses = {n: problem.search("fast", n / problem.expected).guess for n in range(41, 54)}
    assert {guesses[n] for n in range(41, 47)} == {44}
    assert {guesses[n] for n in range(47, 54)} == {50}


def test_the_authors_ranges():
    assert LinearCapacityProblem(64).search("paper") == PaperSearch(64, 2048, 1.01)
    assert MLPCapacityProblem(16, 32).search("paper") == PaperSearch(16, 512, 1.01)
    assert LinearCapacityProblem(1).search("paper") == PaperSearch(1, 2, 1.01)


def test_the_smallest_shapes_can_be_searched():
    assert LinearCapacityProblem(1).search("fast") == FastSearch(2, 1.01, 1.04)
    assert MLPCapacityProblem(1, 1).search("fast").guess >= 1


def test_a_failed_measurement_is_undecided():
    task = LinearCapacityProblem(4).task(3, 0)
    record = execute(task)
    failed = Record(**{**record.__dict__, "metrics": None, "error": "it broke"})
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
def test_what_is_no_question(make):
    with pytest.raises(FactmemError):
        make()
