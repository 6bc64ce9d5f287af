"""Experiments put the pieces together as the paper has them."""

import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.dynamics import find_stages
from factmem.experiments import FlowSpec
from factmem.facts import FactTable

TABLE = FactTable.structured(8, 2, 4)


def test_sizes_left_out_are_those_of_the_paper():
    experiment = FlowSpec(FactTable.structured(16, 4, 8))
    names = experiment.asked.vocabulary
    assert (names.noise, experiment.asked.length, names.prompt_tokens) == (20, 32, 41)
    assert experiment.population.noise == 20
    assert experiment.default_dim == 4 * (41 + 32)


def test_subjects_are_asked_for_by_their_power_everywhere():
    experiment = FlowSpec(TABLE, subject_power=1.0)
    share = np.bincount(experiment.population.subjects, experiment.population.chances)
    assert np.allclose(share * np.arange(1, 9), share[0])
    assert experiment.asked.thresholds is not None


def test_descent_is_tested_on_many_prompts_of_every_fact():
    tested = FlowSpec(TABLE).tested
    assert np.bincount(tested.subjects * 2 + tested.relations).tolist() == [64] * 16
    assert len(FlowSpec(FactTable.random(40, 40, 2)).tested.answers) == 10 * 1600
    assert FlowSpec(TABLE).sampled_prompts is None
    assert FlowSpec(TABLE, start="random").sampled_prompts == 32 * 16


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(FactmemError, match="scale of a start"):
        FlowSpec(TABLE, scale=scale).flow()


def test_descent_from_weights_that_float32_loses_is_refused():
    with pytest.raises(FactmemError, match="float32 cannot leave zero"):
        FlowSpec(TABLE, scale=1e-31).descent()


@pytest.mark.parametrize("start", ["balanced", "random"])
def test_a_softmax_head_has_one_start(start):
    with pytest.raises(FactmemError, match="equal weights"):
        FlowSpec(TABLE, start=start).softmax_descent()


def test_seeds_draw_other_embeddings_and_prompts():
    ends = [
        FlowSpec(TABLE, length=8, seed=seed)
        .softmax_descent(dim=8, rate=1.0, steps=4, batch=4)
        .loss[-1]
        for seed in (0, 0, 1)
    ]
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_softmax_head_shows_the_stages_of_figure_5(seed):
    experiment = FlowSpec(FactTable.structured(16, 4, 8), seed=seed)
    descent = experiment.softmax_descent()
    found = find_stages(descent, experiment.population)
    assert descent.loss[0] == pytest.approx(np.log(32), abs=1e-3)
    assert found.hallucination_end > 3 * found.init_end
    inside = descent.nearest(np.array([1.5 * found.init_end]))[0]
    assert descent.seen.relation_loss[inside] < 0.1
    assert descent.seen.subject_loss[inside] == pytest.approx(np.log(8), abs=0.1)
    assert descent.loss[-1] < 0.05
