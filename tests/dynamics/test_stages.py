"""Stages in curves that are made so that their stages are known."""

import math

import numpy as np
import pytest
from tests.dynamics import made

from factmem.dynamics import Curves, Population, find_stages
from factmem.facts import FactTable

QUESTIONS = Population.of(FactTable.structured(16, 4, 8))
LOG_D, LOG_R = math.log(8), math.log(4)
TIMES = np.linspace(0.0, 100.0, 4001)


def falling(start, stop):
    """From 1 to 0 on a line between two times."""
    return np.interp(TIMES, [start, stop], [1.0, 0.0])


def curves(relation_loss, subject_loss, loss=None, relation_gap=None, subject_gap=None):
    """With the sum for the loss, and predictions off by what is not yet, or already, known."""
    loss = relation_loss + subject_loss if loss is None else loss
    return Curves(
        TIMES,
        made.seen(
            loss,
            relation_loss=relation_loss,
            subject_loss=subject_loss,
            relation_gap=relation_loss + LOG_D - subject_loss
            if relation_gap is None
            else relation_gap,
            subject_gap=subject_loss + LOG_R - relation_loss
            if subject_gap is None
            else subject_gap,
        ),
    )


def test_stages_end_where_the_loss_comes_and_goes():
    found = find_stages(curves(LOG_R * falling(10, 20), LOG_D * falling(60, 70)), QUESTIONS)
    # Within 0.1 of log D: from log D + 0.1 on the first slope to log D − 0.1 on the second.
    assert found.init_end == pytest.approx(20 - 10 * 0.1 / LOG_R, abs=0.01)
    assert found.hallucination_end == pytest.approx(60 + 10 * 0.1 / LOG_D, abs=0.01)
    assert found.hallucination.start == found.init_end
    assert found.subject_only is None


def test_relations_that_come_last_leave_a_stage_of_subjects():
    found = find_stages(curves(LOG_R * falling(60, 70), LOG_D * falling(10, 20)), QUESTIONS)
    assert found.hallucination_end is None
    assert found.subject_only.start == pytest.approx(20 - 10 * 0.1 / LOG_D, abs=0.01)
    assert found.subject_only.end == pytest.approx(60 + 10 * 0.1 / LOG_R, abs=0.01)


def test_a_loss_that_only_falls_past_the_level_has_no_stage():
    found = find_stages(curves(LOG_R * falling(10, 30), LOG_D * falling(10, 30)), QUESTIONS)
    assert found.init_end is not None
    assert found.hallucination_end is None
    assert found.subject_only is None


@pytest.mark.parametrize(("gap", "exists"), [(0.09, True), (0.11, False)])
def test_predictions_must_be_near_those_of_the_relation(gap, exists):
    """Relations that share all answers have no relation-only loss, whatever is predicted."""
    never = np.zeros(4001)
    loss = LOG_R * falling(10, 20) + LOG_D * falling(60, 70)
    found = find_stages(curves(never, never, loss, relation_gap=never + gap), QUESTIONS)
    assert (found.hallucination is not None) == exists
    assert (found.hallucination_end is not None) == exists
    found = find_stages(curves(never, never, loss, subject_gap=never + gap), QUESTIONS)
    assert (found.subject_only is not None) == exists


def test_predictions_must_be_near_while_the_loss_is():
    """Here they are near p(a | r) only when the loss has long passed its level."""
    loss = LOG_R * falling(10, 20) + LOG_D * falling(60, 70)
    gap = np.where(TIMES < 80, 0.5, 0.0)
    assert find_stages(curves(0 * loss, 0 * loss, loss, gap), QUESTIONS).hallucination is None


def test_a_stage_that_is_not_over_has_no_end():
    found = find_stages(curves(LOG_R * falling(10, 20), np.full(4001, LOG_D)), QUESTIONS)
    assert found.init_end == pytest.approx(20 - 10 * 0.1 / LOG_R, abs=0.01)
    assert found.hallucination is not None
    assert found.hallucination_end is None


def test_a_loss_that_never_comes_near_has_no_stage_at_all():
    found = find_stages(curves(np.full(4001, LOG_R), np.full(4001, LOG_D)), QUESTIONS)
    assert found.init_end is None
    assert found.hallucination_end is None


def test_the_last_time_near_the_level_counts_where_the_loss_comes_back():
    loss = np.interp(
        TIMES,
        [10, 20, 40, 41, 42, 43, 60, 70],
        [LOG_R + LOG_D, *[LOG_D] * 2, 1, 1, *[LOG_D] * 2, 0],
    )
    found = find_stages(curves(LOG_R * falling(10, 20), loss, loss, 0 * loss), QUESTIONS)
    assert found.hallucination_end == pytest.approx(60 + 10 * 0.1 / LOG_D, abs=0.01)


def test_with_one_relation_there_is_nothing_to_know_of_it():
    """The loss starts at log D: nothing comes before, and no stage of its own."""
    questions = Population.of(FactTable.structured(16, 1, 8))
    found = find_stages(curves(np.zeros(4001), LOG_D * falling(60, 70)), questions)
    assert found.init_end is None
    assert found.hallucination is None


def test_with_one_answer_a_relation_is_all_there_is_to_know():
    questions = Population.of(FactTable.structured(16, 4, 1))
    found = find_stages(curves(LOG_R * falling(10, 20), np.zeros(4001)), questions)
    assert found.init_end == pytest.approx(20 - 10 * 0.1 / LOG_R, abs=0.01)
    assert found.hallucination is None
    assert found.subject_only is None


def test_with_hardly_another_answer_a_relation_is_nearly_all_there_is_to_know():
    grid = np.zeros((64, 4), int) + 2 * np.arange(4)
    grid[0] += 1  # one subject of 64 differs: H(a | r) = 0.08
    questions = Population.of(FactTable(grid))
    assert 0.05 < questions.relation_level < 0.1
    loss = LOG_R * falling(10, 20) + questions.relation_level * falling(60, 70)
    found = find_stages(curves(0 * loss, 0 * loss, loss, relation_gap=0 * loss), questions)
    assert found.hallucination is None
