"""Theorem 6 where its conditions hold, and where they fail."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.dynamics import made, small

from factmem.dynamics import Conditions, Population, sequential_learning
from factmem.experiments import FlowSpec
from factmem.facts import FactTable

ALPHA = 1e-6


@cache
def learned(subjects, relations, noise):
    experiment = FlowSpec(
        FactTable.structured(subjects, relations, 2),
        noise=noise,
        length=5,
        start="balanced",
        scale=ALPHA,
    )
    return experiment.flow(), experiment.population


def test_conditions_are_those_of_the_theorem():
    found = Conditions.of(Population.of(FactTable.structured(32, 2, 2), noise=80, length=5))
    assert found.subjects_needed == pytest.approx(8 * 2 * np.sqrt(4))
    assert found.noise_needed == pytest.approx(4 * 2 * np.sqrt(4) * 5)
    assert found.met
    assert not replace(found, subjects=31).met
    assert not replace(found, noise=79).met
    figure_5 = Conditions.of(Population.of(FactTable.structured(16, 4, 8)))
    assert figure_5.subjects_needed == pytest.approx(128)
    assert figure_5.noise_needed == pytest.approx(2048)
    assert not figure_5.met


def test_where_the_conditions_hold_relations_are_known_while_the_rest_is_small():
    flow, questions = learned(32, 2, 80)
    assert Conditions.of(questions).met
    found = sequential_learning(flow, questions, ALPHA)
    assert found.holds
    assert found.distance < 1e-3
    assert found.bound == pytest.approx(1e-3)
    assert found.largest_weight < found.bound / 50
    assert found.close_at < found.large_at
    # The same from the flow itself: at that time, and at all times before.
    place = flow.nearest(np.array([found.close_at]))[0]
    subjects_and_noise = [*range(32), 34]
    weights = np.maximum(flow.kq, flow.largest_ov)[: place + 1, subjects_and_noise]
    assert weights.max() == found.largest_weight
    assert flow.seen.distance[place] < 1e-3
    assert flow.seen.distance[place - 1] >= 1e-3
    # Far from a foregone conclusion: relations are large by then.
    assert flow.kq[place, 32:34].min() > 1


def test_where_relations_are_as_slow_as_subjects_there_is_no_such_time():
    flow, questions = learned(4, 4, 80)
    assert not Conditions.of(questions).met
    found = sequential_learning(flow, questions, ALPHA)
    assert not found.holds
    assert found.distance > 0.1
    assert found.close_at is None
    assert found.largest_weight is None
    place = flow.nearest(np.array([found.large_at]))[0]
    weights = np.maximum(flow.kq, flow.largest_ov)[:, [0, 1, 2, 3, 8]].max(axis=1)
    assert weights[place - 1] <= 1e-3 < weights[place]


# ---- made flows: three subjects, two relations, noise, EOS, and √α = 0.1 -------------------------

QUESTIONS = Population.of(small.TABLE, noise=small.N, length=small.T)
SUBJECT, RELATION, NOISE, EOS = 1, 3, 5, 6


def found_in(token, weights, distance, of="kq"):
    """What is found where one token has these weights, and all others 0.01."""
    each = np.full((4, 7), 0.01)
    each[:, token] = weights
    quiet = np.full((4, 7), 0.001)
    kq, ov = (each, quiet) if of == "kq" else (quiet, each)
    flow = made.flow(range(4), kq, largest_ov=ov, distance=distance)
    return sequential_learning(flow, QUESTIONS, 0.01)


@pytest.mark.parametrize("token", [SUBJECT, NOISE])
@pytest.mark.parametrize("of", ["kq", "ov"])
def test_no_weight_of_a_subject_or_of_noise_may_be_large(token, of):
    found = found_in(token, [0.01, 0.05, 0.2, 0.3], [1, 0.5, 1e-6, 1e-6], of)
    assert (found.close_at, found.large_at, found.distance) == (None, 2, 0.5)
    assert not found.holds
    found = found_in(token, [0.01, 0.05, 0.2, 0.3], [1, 1e-4, 1e-6, 1e-6], of)
    assert (found.close_at, found.large_at, found.distance) == (1, 2, 1e-4)
    assert found.largest_weight == 0.05
    assert found.holds


@pytest.mark.parametrize("token", [RELATION, EOS])
def test_relations_and_eos_may_be_large(token):
    found = found_in(token, [0.01, 5, 5, 5], [1, 0.5, 1e-4, 1e-6])
    assert (found.close_at, found.large_at, found.distance) == (2, None, 1e-6)
    assert found.largest_weight == 0.01


def test_a_weight_that_was_large_counts_for_ever():
    found = found_in(SUBJECT, [0.01, 0.2, 0.01, 0.01], [1, 0.5, 1e-6, 1e-6])
    assert (found.close_at, found.large_at, found.distance) == (None, 1, 1)
    found = found_in(SUBJECT, [0.01, 0.09, 0.02, 0.01], [1, 0.5, 1e-6, 1e-6])
    assert found.largest_weight == 0.09


def test_weights_that_start_large_were_never_small():
    found = found_in(SUBJECT, [0.2, 0.2, 0.2, 0.2], [1e-6] * 4)
    assert (found.close_at, found.large_at, found.distance) == (None, 0, None)
    assert not found.holds
