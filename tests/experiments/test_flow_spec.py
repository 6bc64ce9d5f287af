"""Specs of gradient flow and SGD: instances, runs, identities and costs."""

import json
from dataclasses import replace

import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.canonical_json import canonical_json
from factmem._core.errors import FactmemError
from factmem.dynamics import find_stages
from factmem.experiments import FlowSpec, PromptSpec, SGDConfig, TableSpec
from factmem.experiments.flow_spec import LINEAR_SGD, SOFTMAX_SGD
from factmem.facts import FactTable

SPEC = FlowSpec(table=TableSpec.structured(8, 2, 4))

sizes = st.integers(1, 10**4)
positive = st.floats(1e-30, 1e6) | st.just(1.0)
specs = st.builds(
    FlowSpec,
    table=st.builds(TableSpec.random, sizes, sizes, sizes)
    | st.builds(TableSpec.structured, sizes, sizes, sizes),
    prompts=st.builds(
        PromptSpec, noise=st.none() | sizes, length=sizes, subject_power=st.floats(0, 3)
    ),
    method=st.sampled_from(["flow", "sgd", "softmax-sgd"]),
    init=st.sampled_from(["equal", "balanced", "random"]),
    scale=positive,
    until=st.none() | positive,
    sgd=st.none() | st.builds(SGDConfig, positive, sizes, sizes),
    dim=st.none() | sizes,
    seed=st.integers(0, 2**31 - 1),
)


@given(specs)
def test_specs_round_trip_through_json(spec):
    restored = FlowSpec.from_config(json.loads(canonical_json(spec.config())))
    resolved = replace(spec, sgd=None if spec.method == "flow" else spec.sgd_config)
    assert restored == resolved
    assert repr(restored) == repr(resolved), "the types are the same too"
    assert restored.config() == spec.config()
    if spec.method != "sgd":
        assert restored.identity() == spec.identity()


@pytest.mark.parametrize(
    "change",
    [
        {"table": TableSpec.random(8, 2, 4)},
        {"table": TableSpec.structured(16, 2, 4)},
        {"prompts": PromptSpec(noise=3)},
        {"prompts": PromptSpec(length=8)},
        {"prompts": PromptSpec(subject_power=1.0)},
        {"method": "softmax-sgd"},
        {"init": "balanced"},
        {"scale": 1e-4},
        {"until": 7.0},
        {"dim": 9},
        {"seed": 1},
    ],
    ids=str,
)
def test_every_field_changes_the_identity(change):
    assert replace(SPEC, **change).identity() != SPEC.identity()


def test_every_setting_of_sgd_changes_the_identity():
    spec = replace(SPEC, method="softmax-sgd")
    identities = {spec.identity()}
    for change in ({"learning_rate": 2.0}, {"steps": 3}, {"batch_size": 5}):
        identities.add(replace(spec, sgd=SOFTMAX_SGD._replace(**change)).identity())
    assert len(identities) == 4
    assert replace(spec, sgd=SOFTMAX_SGD).identity() == spec.identity()


def test_every_method_has_an_identity():
    methods = ("flow", "sgd", "softmax-sgd")
    assert len({replace(SPEC, method=method).identity() for method in methods}) == 3


def test_the_settings_of_sgd_have_defaults_by_method():
    assert replace(SPEC, method="sgd").sgd_config == LINEAR_SGD
    assert replace(SPEC, method="softmax-sgd").sgd_config == SOFTMAX_SGD
    own = SGDConfig(learning_rate=1.0, steps=2, batch_size=3)
    assert replace(SPEC, method="softmax-sgd", sgd=own).sgd_config == own


def test_draw_splits_the_key_of_the_seed_in_three():
    instance = replace(SPEC, table=TableSpec.random(8, 2, 4), seed=5).draw()
    keys = jr.split(jr.key(5), 3)
    assert instance.embedding_key == keys[0]
    assert instance.test_key == keys[1]
    assert instance.training_key == keys[2]
    expected = FactTable.random(8, 2, 4, seed=5)
    assert np.array_equal(instance.table.answer_of, expected.answer_of)


def test_draw_depends_only_on_the_seed():
    spec = replace(SPEC, table=TableSpec.random(8, 2, 4), prompts=PromptSpec(length=8))
    first, again, other = (replace(spec, seed=seed).draw() for seed in (1, 1, 2))
    assert np.array_equal(first.table.answer_of, again.table.answer_of)
    assert np.array_equal(first.test_prompts.subject_ids, again.test_prompts.subject_ids)
    assert first.training_key == again.training_key != other.training_key


def test_default_sizes_are_those_of_the_paper():
    instance = FlowSpec(table=TableSpec.structured(16, 4, 8)).draw()
    vocabulary = instance.prompts.vocabulary
    assert (vocabulary.noise, instance.prompts.length, vocabulary.prompt_tokens) == (20, 32, 41)
    assert instance.population.noise == 20
    assert instance.default_dim == 4 * (41 + 32)


def test_the_subject_power_applies_to_population_and_prompts():
    instance = replace(SPEC, prompts=PromptSpec(subject_power=1.0)).draw()
    population = instance.population
    shares = np.bincount(population.subject_ids, population.probabilities)
    assert np.allclose(shares * np.arange(1, 9), shares[0])
    assert instance.prompts.thresholds is not None


def test_sgd_is_tested_on_many_prompts_of_every_fact():
    test_prompts = SPEC.draw().test_prompts
    facts = test_prompts.subject_ids * 2 + test_prompts.relation_ids
    assert np.bincount(facts).tolist() == [64] * 16
    large = FlowSpec(table=TableSpec.random(40, 40, 2)).draw()
    assert len(large.test_prompts.answer_ids) == 10 * 1600
    assert SPEC.draw().sampled_prompts is None
    assert replace(SPEC, init="random").draw().sampled_prompts == 32 * 16


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_rejects_a_scale_that_is_not_positive_and_finite(scale):
    with pytest.raises(FactmemError, match="scale must be positive and finite, got"):
        replace(SPEC, scale=scale)


@pytest.mark.parametrize("method", ["sgd", "softmax-sgd"])
def test_sgd_rejects_weights_that_vanish_in_float32(method):
    with pytest.raises(FactmemError, match="scale must be at least 1e-30 for SGD in float32"):
        replace(SPEC, method=method, scale=1e-31).run()


@pytest.mark.parametrize("init", ["balanced", "random"])
def test_a_softmax_head_rejects_other_initial_weights(init):
    with pytest.raises(
        FactmemError, match=f"a softmax head needs the initial weights 'equal', got '{init}'"
    ):
        replace(SPEC, method="softmax-sgd", init=init).run()


def test_seeds_change_embeddings_and_prompts():
    spec = replace(
        SPEC,
        method="softmax-sgd",
        prompts=PromptSpec(length=8),
        dim=8,
        sgd=SGDConfig(learning_rate=1.0, steps=4, batch_size=4),
    )
    first, again, other = (replace(spec, seed=seed).run().loss[-1] for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("method", ["flow", "sgd", "softmax-sgd"])
def test_the_cost_is_positive_and_grows_with_size(method):
    spec = replace(SPEC, method=method)
    cost = spec.cost()
    assert min(cost.steps, cost.flops_per_step, cost.flops, cost.peak_bytes, cost.overhead) > 0
    for sizes in ((16, 2, 4), (8, 4, 4), (8, 2, 8)):
        larger = replace(spec, table=TableSpec.structured(*sizes)).cost()
        assert larger.flops > cost.flops, sizes
        assert larger.peak_bytes > cost.peak_bytes, sizes


def test_the_cost_of_sgd_grows_with_its_settings():
    spec = replace(SPEC, method="softmax-sgd")
    for change in ({"steps": 10**4}, {"batch_size": 4096}):
        longer = replace(spec, sgd=SOFTMAX_SGD._replace(**change))
        assert longer.cost().flops > spec.cost().flops


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_softmax_head_shows_the_stages_of_figure_5(seed):
    spec = FlowSpec(table=TableSpec.structured(16, 4, 8), method="softmax-sgd", seed=seed)
    result = spec.run()
    stages = find_stages(result, spec.draw().population)
    assert result.loss[0] == pytest.approx(np.log(32), abs=1e-3)
    assert stages.hallucination_end > 3 * stages.init_end
    inside = result.nearest(np.array([1.5 * stages.init_end]))[0]
    assert result.statistics.relation_loss[inside] < 0.1
    assert result.statistics.subject_loss[inside] == pytest.approx(np.log(8), abs=0.1)
    assert result.loss[-1] < 0.05
