"""Stages of synthetic learning curves."""

import math

import numpy as np
import pytest
from tests.dynamics import synthetic_flows

from factmem.dynamics import Curves, PromptPopulation, find_stages
from factmem.facts import FactTable

POPULATION = PromptPopulation.from_table(FactTable.structured(16, 4, 8))
LOG_D, LOG_R = math.log(8), math.log(4)
TIMES = np.linspace(0.0, 100.0, 4001)


def falling(start, stop):
    """Fall linearly from 1 to 0 between two times."""
    return np.interp(TIMES, [start, stop], [1.0, 0.0])


def curves(relation_loss, subject_loss, loss=None, relation_kl=None, subject_kl=None):
    """Return curves; by default the loss is the sum, and divergences follow from the losses."""
    loss = relation_loss + subject_loss if loss is None else loss
    return Curves(
        TIMES,
        synthetic_flows.statistics(
            loss,
            relation_loss=relation_loss,
            subject_loss=subject_loss,
            relation_kl=relation_loss + LOG_D - subject_loss
            if relation_kl is None
            else relation_kl,
            subject_kl=subject_loss + LOG_R - relation_loss if subject_kl is None else subject_kl,
        ),
    )


def test_finds_the_hallucination_stage():
    stages = find_stages(curves(LOG_R * falling(10, 20), LOG_D * falling(60, 70)), POPULATION)
    # The loss is within 0.1 of log D from the end of the first slope to the start of the second.
    assert stages.init_end == pytest.approx(20 - 10 * 0.1 / LOG_R, abs=0.01)
    assert stages.hallucination_end == pytest.approx(60 + 10 * 0.1 / LOG_D, abs=0.01)
    assert stages.hallucination.start == stages.init_end
    assert stages.subject_only is None


def test_finds_the_subject_only_stage():
    stages = find_stages(curves(LOG_R * falling(60, 70), LOG_D * falling(10, 20)), POPULATION)
    assert stages.hallucination_end is None
    assert stages.subject_only.start == pytest.approx(20 - 10 * 0.1 / LOG_D, abs=0.01)
    assert stages.subject_only.end == pytest.approx(60 + 10 * 0.1 / LOG_R, abs=0.01)


def test_loss_that_passes_the_level_has_no_stage():
    stages = find_stages(curves(LOG_R * falling(10, 30), LOG_D * falling(10, 30)), POPULATION)
    assert stages.init_end is not None
    assert stages.hallucination_end is None
    assert stages.subject_only is None


@pytest.mark.parametrize(("kl", "exists"), [(0.09, True), (0.11, False)])
def test_stage_needs_predictions_near_the_conditional(kl, exists):
    """If relations share all answers, the relation loss is 0 for all predictions."""
    zeros = np.zeros(4001)
    loss = LOG_R * falling(10, 20) + LOG_D * falling(60, 70)
    stages = find_stages(curves(zeros, zeros, loss, relation_kl=zeros + kl), POPULATION)
    assert (stages.hallucination is not None) == exists
    assert (stages.hallucination_end is not None) == exists
    stages = find_stages(curves(zeros, zeros, loss, subject_kl=zeros + kl), POPULATION)
    assert (stages.subject_only is not None) == exists


def test_predictions_must_be_near_while_the_loss_is_near_the_level():
    """Here they are near p(a | r) only after the loss has passed the level."""
    loss = LOG_R * falling(10, 20) + LOG_D * falling(60, 70)
    kl = np.where(TIMES < 80, 0.5, 0.0)
    assert find_stages(curves(0 * loss, 0 * loss, loss, kl), POPULATION).hallucination is None


def test_unfinished_stage_has_no_end():
    stages = find_stages(curves(LOG_R * falling(10, 20), np.full(4001, LOG_D)), POPULATION)
    assert stages.init_end == pytest.approx(20 - 10 * 0.1 / LOG_R, abs=0.01)
    assert stages.hallucination is not None
    assert stages.hallucination_end is None


def test_loss_that_stays_above_the_level_has_no_stage():
    stages = find_stages(curves(np.full(4001, LOG_R), np.full(4001, LOG_D)), POPULATION)
    assert stages.init_end is None
    assert stages.hallucination_end is None


def test_stage_ends_at_the_last_time_near_the_level():
    loss = np.interp(
        TIMES,
        [10, 20, 40, 41, 42, 43, 60, 70],
        [LOG_R + LOG_D, *[LOG_D] * 2, 1, 1, *[LOG_D] * 2, 0],
    )
    stages = find_stages(curves(LOG_R * falling(10, 20), loss, loss, 0 * loss), POPULATION)
    assert stages.hallucination_end == pytest.approx(60 + 10 * 0.1 / LOG_D, abs=0.01)


def test_one_relation_has_no_stages():
    """The loss starts at log D."""
    population = PromptPopulation.from_table(FactTable.structured(16, 1, 8))
    stages = find_stages(curves(np.zeros(4001), LOG_D * falling(60, 70)), population)
    assert stages.init_end is None
    assert stages.hallucination is None


def test_one_answer_per_relation_has_no_hallucination():
    population = PromptPopulation.from_table(FactTable.structured(16, 4, 1))
    stages = find_stages(curves(LOG_R * falling(10, 20), np.zeros(4001)), population)
    assert stages.init_end == pytest.approx(20 - 10 * 0.1 / LOG_R, abs=0.01)
    assert stages.hallucination is None
    assert stages.subject_only is None


def test_small_relation_entropy_has_no_hallucination():
    grid = np.zeros((64, 4), int) + 2 * np.arange(4)
    grid[0] += 1  # one subject of 64 differs: H(a | r) = 0.08
    population = PromptPopulation.from_table(FactTable(grid))
    assert 0.05 < population.relation_entropy < 0.1
    loss = LOG_R * falling(10, 20) + population.relation_entropy * falling(60, 70)
    stages = find_stages(curves(0 * loss, 0 * loss, loss, relation_kl=0 * loss), population)
    assert stages.hallucination is None
