"""Stages in curves that are made so that their stages are known."""

import math

import numpy as np
import pytest

from factmem.dynamics import Curves, Population, Seen, find_stages
from factmem.facts import FactTable

QUESTIONS = Population.of(FactTable.structured(16, 4, 8))
LOG_D, LOG_R = math.log(8), math.log(4)
TIMES = np.linspace(0.0, 100.0, 4001)


def falling(start, stop):
    """From 1 to 0 on a line between two times."""
    return np.interp(TIMES, [start, stop], [1.0, 0.0])


def curves(relation_loss, subject_loss, loss=None):
    """With the sum for the loss, as if subject and relation were learnt apart."""
    loss = relation_loss + subject_loss if loss is None else loss
    unused = np.zeros((len(loss), 1))
    return Curves(TIMES, Seen(loss, relation_loss, subject_loss, loss, unused))


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
    found = find_stages(curves(LOG_R * falling(10, 20), loss, loss), QUESTIONS)
    assert found.hallucination_end == pytest.approx(60 + 10 * 0.1 / LOG_D, abs=0.01)


def test_with_one_relation_nothing_comes_before_the_stage():
    """Its loss starts at log D: relations need not be learnt."""
    questions = Population.of(FactTable.structured(16, 1, 8))
    found = find_stages(curves(np.zeros(4001), LOG_D * falling(60, 70)), questions)
    assert found.init_end is None
    assert found.hallucination.start == 0
    assert found.hallucination_end == pytest.approx(60 + 10 * 0.1 / LOG_D, abs=0.01)


def test_with_one_answer_a_relation_is_all_there_is_to_know():
    questions = Population.of(FactTable.structured(16, 4, 1))
    found = find_stages(curves(LOG_R * falling(10, 20), np.zeros(4001)), questions)
    assert found.init_end == pytest.approx(20 - 10 * 0.1 / LOG_R, abs=0.01)
    assert found.hallucination is None
