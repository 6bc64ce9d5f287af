"""The measured stages are those of the flow."""

import json
from dataclasses import replace

import numpy as np
import pytest

from factmem.dynamics import PromptPopulation, escape_rates, find_stages
from factmem.experiments import FlowSpec, PromptSpec, SGDConfig, TableSpec, Task
from factmem.experiments.flow_measures import FLOW, SGD, measure_flow
from factmem.facts import FactTable

SPEC = FlowSpec(
    table=TableSpec.structured(8, 2, 4), prompts=PromptSpec(noise=10, length=8), scale=1e-3
)


def test_measured_stages_are_those_of_the_flow():
    metrics = measure_flow(**SPEC.config())
    json.dumps(metrics, allow_nan=False)
    flow = SPEC.run()
    stages = find_stages(flow, SPEC.draw().population)
    total = metrics["converged_at"]
    assert total == pytest.approx(flow.times[-1], rel=1e-6)
    assert metrics["init_end"] == stages.init_end
    plateau = metrics["hallucination"]
    assert (plateau["start"], plateau["end"]) == (stages.init_end, stages.hallucination_end)
    assert plateau["share"] == pytest.approx((plateau["end"] - plateau["start"]) / total)
    middle = np.interp((plateau["start"] + plateau["end"]) / 2, flow.times, flow.loss)
    assert plateau["loss"] == pytest.approx(middle, abs=1e-2)
    assert metrics["subject_only"] is None
    # λ_r / λ_s = (S/R) √((R − 1)/(D − 1)).
    assert metrics["rates"]["relations"] / metrics["rates"]["subjects"] == pytest.approx(
        8 / 2 * np.sqrt(1 / 3)
    )
    assert metrics["left_zero"]["relations"] < metrics["left_zero"]["subjects"]
    assert metrics["left_zero"]["noise"] is None
    assert len(metrics["learned"]) == 8
    assert np.ptp(metrics["learned"]) < 1e-6 * total  # all subjects are equivalent
    assert sum(metrics["subject_probabilities"]) == pytest.approx(1)


def test_frequent_subjects_are_learned_first():
    spec = replace(SPEC, prompts=replace(SPEC.prompts, subject_power=1.0))
    metrics = measure_flow(**spec.config())
    assert (np.diff(metrics["learned"]) >= 0).all()
    assert metrics["learned"][-1] > 2 * metrics["learned"][0]
    assert (np.diff(metrics["subject_probabilities"]) < 0).all()
    population = PromptPopulation.from_table(FactTable.structured(8, 2, 4), subject_power=1.0)
    assert metrics["rates"]["subjects"] == np.median(escape_rates(population).subjects)


def test_a_random_table_is_drawn_from_its_seed():
    prompts = PromptSpec(noise=2, length=8)
    spec = replace(SPEC, table=TableSpec.random(8, 2, 4), prompts=prompts)
    first, again, other = (measure_flow(**replace(spec, seed=seed).config()) for seed in (1, 1, 2))
    assert first == again
    assert first["levels"] != other["levels"]
    # Noise has an effect here, because answers are not equally frequent.
    flow = replace(spec, seed=1).run()
    added = np.abs(flow.kq) * flow.largest_ov * np.array([1] * 10 + [8 - 3, 1])
    for kind, tokens in (("noise", [10]), ("eos", [11]), ("relations", [8, 9])):
        visible = added[:, tokens].max(axis=1) >= 0.1
        expected = flow.times[np.argmax(visible)] if visible.any() else None
        assert first["left_zero"][kind] == expected
    assert first["left_zero"]["noise"] is not None


def test_softmax_heads_are_measured():
    config = FlowSpec(
        table=TableSpec.structured(4, 2, 2),
        method="softmax-sgd",
        dim=16,
        sgd=SGDConfig(learning_rate=4.0, steps=8, batch_size=1024),
    ).config()
    metrics = SGD.function(**config)
    json.dumps(metrics, allow_nan=False)
    assert metrics["hallucination_end"] is None
    assert len(metrics["times"]) == len(metrics["losses"]) == 9
    assert metrics["loss"] == metrics["losses"][-1]
    assert Task(SGD, config).identity != Task(FLOW, config).identity
