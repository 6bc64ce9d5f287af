"""The numbers of a map are those of the flow they come from."""

import json

import numpy as np
import pytest

from factmem.dynamics import Population, escape_rates, find_stages
from factmem.experiments import FlowSpec
from factmem.experiments.flow_measures import FLOW, SOFTMAX, measure_flow
from factmem.experiments.task import Task
from factmem.facts import FactTable

CONFIG = {
    "subjects": 8,
    "relations": 2,
    "answers": 4,
    "table": "structured",
    "noise": 10,
    "length": 8,
    "subject_power": 0.0,
    "scale": 1e-3,
    "seed": 0,
}


def test_a_map_has_the_stages_of_the_flow():
    found = measure_flow(**CONFIG)
    json.dumps(found, allow_nan=False)
    experiment = FlowSpec(FactTable.structured(8, 2, 4), length=8, scale=1e-3)
    flow = experiment.flow()
    stages = find_stages(flow, experiment.population)
    assert found["whole"] == pytest.approx(flow.times[-1], rel=1e-6)
    assert found["init_end"] == stages.init_end
    plateau = found["hallucination"]
    assert (plateau["start"], plateau["end"]) == (stages.init_end, stages.hallucination_end)
    assert plateau["share"] == pytest.approx((plateau["end"] - plateau["start"]) / found["whole"])
    middle = np.interp((plateau["start"] + plateau["end"]) / 2, flow.times, flow.loss)
    assert plateau["loss"] == pytest.approx(middle, abs=1e-2)
    assert found["subject_only"] is None
    # λ_r / λ_s = (S/R) √((R − 1)/(D − 1)), which is what the map's page says.
    assert found["rates"]["relations"] / found["rates"]["subjects"] == pytest.approx(
        8 / 2 * np.sqrt(1 / 3)
    )
    assert found["left_zero"]["relations"] < found["left_zero"]["subjects"]
    assert found["left_zero"]["noise"] is None
    assert len(found["learned"]) == 8
    assert np.ptp(found["learned"]) < 1e-6 * found["whole"]  # all subjects are alike
    assert sum(found["chances"]) == pytest.approx(1)


def test_frequent_subjects_are_learned_first():
    found = measure_flow(**{**CONFIG, "subject_power": 1.0})
    assert (np.diff(found["learned"]) >= 0).all()
    assert found["learned"][-1] > 2 * found["learned"][0]
    assert (np.diff(found["chances"]) < 0).all()
    questions = Population.of(FactTable.structured(8, 2, 4), subject_power=1.0)
    assert found["rates"]["subjects"] == np.median(escape_rates(questions).subjects)


def test_a_random_table_is_drawn_from_its_seed():
    config = {**CONFIG, "table": "random", "noise": 2}
    drawn = [measure_flow(**{**config, "seed": seed}) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0]["levels"] != drawn[2]["levels"]
    # Noise says something there, for answers are not equally frequent.
    flow = FlowSpec(FactTable.random(8, 2, 4, seed=1), noise=2, length=8, scale=1e-3).flow()
    added = np.abs(flow.kq) * flow.largest_ov * np.array([1] * 10 + [8 - 3, 1])
    for kind, tokens in (("noise", [10]), ("eos", [11]), ("relations", [8, 9])):
        said = added[:, tokens].max(axis=1) >= 0.1
        expected = flow.times[np.argmax(said)] if said.any() else None
        assert drawn[0]["left_zero"][kind] == expected
    assert drawn[0]["left_zero"]["noise"] is not None


def test_softmax_heads_are_measured_too():
    sizes = {"subjects": 4, "relations": 2, "answers": 2}
    config = {**sizes, "dim": 16, "rate": 4.0, "steps": 8, "scale": 1e-5, "seed": 0}
    found = SOFTMAX.function(**config)
    json.dumps(found, allow_nan=False)
    assert found["hallucination_end"] is None
    assert len(found["times"]) == len(found["losses"]) == 9
    assert found["loss"] == found["losses"][-1]
    assert Task(SOFTMAX, config).identity != Task(FLOW, config).identity
