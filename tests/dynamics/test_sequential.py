"""Sequential learning where the conditions of Theorem 6 hold, and where they fail."""

from dataclasses import replace

import numpy as np
import pytest
from tests.dynamics import small_problem, synthetic_flows
from tests.dynamics.exact_flows import exact_flow

from factmem.dynamics import PromptPopulation, SequentialConditions, sequential_learning
from factmem.facts import FactTable

ALPHA = 1e-6


def balanced_flow(subjects, relations):
    table = FactTable.structured(subjects, relations, 2)
    return exact_flow(table, noise=80, length=5, start="balanced", scale=ALPHA)


def test_conditions_match_the_theorem():
    conditions = SequentialConditions.from_population(
        PromptPopulation.from_table(FactTable.structured(32, 2, 2), noise=80, length=5)
    )
    assert conditions.subjects_needed == pytest.approx(8 * 2 * np.sqrt(4))
    assert conditions.noise_needed == pytest.approx(4 * 2 * np.sqrt(4) * 5)
    assert conditions.met
    assert not replace(conditions, subjects=31).met
    assert not replace(conditions, noise=79).met
    figure_5 = SequentialConditions.from_population(
        PromptPopulation.from_table(FactTable.structured(16, 4, 8))
    )
    assert figure_5.subjects_needed == pytest.approx(128)
    assert figure_5.noise_needed == pytest.approx(2048)
    assert not figure_5.met


def test_relations_are_learned_first_if_the_conditions_hold():
    flow, population = balanced_flow(32, 2)
    assert SequentialConditions.from_population(population).met
    learning = sequential_learning(flow, population, ALPHA)
    assert learning.holds
    assert learning.min_relation_distance < 1e-3
    assert learning.weight_bound == pytest.approx(1e-3)
    assert learning.max_other_weight < learning.weight_bound / 50
    assert learning.relations_learned_time < learning.bound_exceeded_time
    # Compare with the flow at that time, and at all times before.
    index = flow.nearest(np.array([learning.relations_learned_time]))[0]
    subjects_and_noise = [*range(32), 34]
    weights = np.maximum(flow.kq, flow.largest_ov)[: index + 1, subjects_and_noise]
    assert weights.max() == learning.max_other_weight
    assert flow.statistics.relation_distance[index] < 1e-3
    assert flow.statistics.relation_distance[index - 1] >= 1e-3
    # Relations are large by then.
    assert flow.kq[index, 32:34].min() > 1


def test_relations_are_not_learned_first_if_they_are_as_slow_as_subjects():
    flow, population = balanced_flow(4, 4)
    assert not SequentialConditions.from_population(population).met
    learning = sequential_learning(flow, population, ALPHA)
    assert not learning.holds
    assert learning.min_relation_distance > 0.1
    assert learning.relations_learned_time is None
    assert learning.max_other_weight is None
    index = flow.nearest(np.array([learning.bound_exceeded_time]))[0]
    weights = np.maximum(flow.kq, flow.largest_ov)[:, [0, 1, 2, 3, 8]].max(axis=1)
    assert weights[index - 1] <= 1e-3 < weights[index]


# ---- synthetic flows: three subjects, two relations, noise, EOS, and √α = 0.1 --------------------

POPULATION = small_problem.make_population()
SUBJECT, RELATION, NOISE, EOS = 1, 3, 5, 6


def learning_with(token, weights, distance, matrix="kq"):
    """Analyze a flow in which one token has these weights, and all others at most 0.01."""
    large = np.full((4, 7), 0.01)
    large[:, token] = weights
    small = np.full((4, 7), 0.001)
    kq, ov = (large, small) if matrix == "kq" else (small, large)
    flow = synthetic_flows.flow(range(4), kq, largest_ov=ov, distance=distance)
    return sequential_learning(flow, POPULATION, 0.01)


@pytest.mark.parametrize("token", [SUBJECT, NOISE])
@pytest.mark.parametrize("matrix", ["kq", "ov"])
def test_no_weight_of_a_subject_or_of_noise_may_be_large(token, matrix):
    learning = learning_with(token, [0.01, 0.05, 0.2, 0.3], [1, 0.5, 1e-6, 1e-6], matrix)
    assert (
        learning.relations_learned_time,
        learning.bound_exceeded_time,
        learning.min_relation_distance,
    ) == (None, 2, 0.5)
    assert not learning.holds
    learning = learning_with(token, [0.01, 0.05, 0.2, 0.3], [1, 1e-4, 1e-6, 1e-6], matrix)
    assert (
        learning.relations_learned_time,
        learning.bound_exceeded_time,
        learning.min_relation_distance,
    ) == (1, 2, 1e-4)
    assert learning.max_other_weight == 0.05
    assert learning.holds


@pytest.mark.parametrize("token", [RELATION, EOS])
def test_relations_and_eos_may_be_large(token):
    learning = learning_with(token, [0.01, 5, 5, 5], [1, 0.5, 1e-4, 1e-6])
    assert (
        learning.relations_learned_time,
        learning.bound_exceeded_time,
        learning.min_relation_distance,
    ) == (2, None, 1e-6)
    assert learning.max_other_weight == 0.01


def test_weight_that_was_large_counts_later():
    learning = learning_with(SUBJECT, [0.01, 0.2, 0.01, 0.01], [1, 0.5, 1e-6, 1e-6])
    assert (
        learning.relations_learned_time,
        learning.bound_exceeded_time,
        learning.min_relation_distance,
    ) == (None, 1, 1)
    learning = learning_with(SUBJECT, [0.01, 0.09, 0.02, 0.01], [1, 0.5, 1e-6, 1e-6])
    assert learning.max_other_weight == 0.09


def test_weights_that_start_large_are_never_small():
    learning = learning_with(SUBJECT, [0.2, 0.2, 0.2, 0.2], [1e-6] * 4)
    assert (
        learning.relations_learned_time,
        learning.bound_exceeded_time,
        learning.min_relation_distance,
    ) == (None, 0, None)
    assert not learning.holds
