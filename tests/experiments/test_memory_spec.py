"""Specs of memories: instances, runs, identities and costs."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.canonical_json import canonical_json
from factmem._core.errors import FactmemError
from factmem.experiments import MEMORY_METHODS, MemorySpec, execute
from factmem.memories import Associations
from factmem.training import LINEAR_PROTOCOL, MLP_PROTOCOL, MemoryProtocol

SPEC = MemorySpec(method="hermite", dim=4, facts=6, width=8, seed=3)

protocols = st.builds(
    MemoryProtocol,
    learning_rate=st.floats(1e-6, 1e4) | st.just(1000.0),
    steps=st.integers(1, 100).map(lambda steps: 4 * steps),
    evaluations=st.sampled_from([1, 2, 4]),
    criterion=st.floats(0.01, 1.0),
)
sizes = st.integers(1, 10**6)
specs = st.builds(
    MemorySpec,
    method=st.sampled_from(list(MEMORY_METHODS)),
    dim=sizes,
    facts=sizes,
    outputs=st.none() | sizes,
    target=st.none() | st.sampled_from(["identity", "permutation", "blocks", "uniform"]),
    width=st.none() | sizes,
    rank=st.none() | sizes,
    degree=st.none() | sizes,
    protocol=st.none() | protocols,
    seed=st.integers(0, 2**31 - 1),
)


@given(specs)
def test_specs_round_trip_through_json(spec):
    restored = MemorySpec.from_config(json.loads(canonical_json(spec.config())))
    resolved = replace(spec, outputs=spec.facts if spec.outputs is None else spec.outputs)
    assert restored == resolved
    assert repr(restored) == repr(resolved), "the types are the same too"
    assert restored.config() == spec.config()
    assert restored.identity() == spec.identity()


@pytest.mark.parametrize("target", [None, "identity", "permutation", "uniform"])
def test_default_outputs_are_resolved_to_the_number_of_facts(target):
    default = replace(SPEC, target=target)
    resolved = MemorySpec.from_config(default.config())
    assert resolved.outputs == 6
    for left, right in zip(*map(jax.tree.leaves, _arrays(default, resolved)), strict=True):
        assert np.array_equal(left, right)


def _arrays(*specs):
    associations = [spec.draw().associations for spec in specs]
    return [(pairs.keys, pairs.values, pairs.target) for pairs in associations]


@pytest.mark.parametrize(
    "change",
    [
        {"method": "tangent"},
        {"dim": 5},
        {"facts": 7},
        {"outputs": 5},
        {"target": "permutation"},
        {"width": 9},
        {"rank": 2},
        {"degree": 3},
        {"protocol": LINEAR_PROTOCOL},
        {"seed": 4},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_changes_the_identity(change):
    assert replace(SPEC, **change).identity() != SPEC.identity()


def test_every_number_of_a_protocol_changes_the_identity():
    spec = replace(SPEC, method="trained-mlp", protocol=MLP_PROTOCOL)
    identities = {spec.identity()}
    for change in (
        {"learning_rate": 0.1},
        {"steps": 2**14},
        {"evaluations": 64},
        {"criterion": 0.9},
    ):
        identities.add(replace(spec, protocol=replace(MLP_PROTOCOL, **change)).identity())
    assert len(identities) == 5


def test_draw_splits_the_key_of_the_seed_in_three():
    instance = SPEC.draw()
    keys = jr.split(jr.key(3), 3)
    expected = Associations.draw(6, 4, key=keys[0])
    assert np.array_equal(instance.associations.keys, expected.keys)
    assert np.array_equal(instance.associations.values, expected.values)
    assert np.array_equal(instance.associations.target, expected.target)
    assert instance.method_key == keys[1]
    assert instance.test_key == keys[2]


def test_a_uniform_target_is_drawn_with_the_third_key():
    uniform = replace(SPEC, outputs=5, target="uniform").draw().associations
    blocks = replace(SPEC, outputs=5).draw().associations
    target = jr.randint(jr.split(jr.key(3), 3)[2], (6,), 0, 5, dtype=jnp.int32)
    assert np.array_equal(uniform.target, target)
    assert np.array_equal(uniform.keys, blocks.keys)
    assert np.array_equal(uniform.values, blocks.values)


def test_draw_depends_only_on_the_seed():
    first, again, other = _arrays(SPEC, replace(SPEC), replace(SPEC, seed=4))
    assert all(map(np.array_equal, first, again))
    assert not np.array_equal(first[0], other[0])


def test_a_run_has_instance_model_status_and_times():
    reports = []
    protocol = replace(LINEAR_PROTOCOL, steps=8, evaluations=2)
    spec = MemorySpec(method="trained-linear", dim=4, facts=6, protocol=protocol)
    result = spec.run(report=lambda step, **values: reports.append(step))
    assert result.instance.associations.facts == 6
    assert result.model is result.built.model
    assert result.status is result.built.status
    assert result.metrics["status"] == result.status.label
    assert result.seconds >= 0
    assert result.compile_seconds >= 0
    assert result.metrics["steps"] <= 8
    assert reports


def test_the_task_of_a_spec_measures_the_same_as_its_run():
    spec = MemorySpec(method="optimal", dim=4, facts=6)
    metrics = execute(spec.task()).metrics
    result = spec.run()
    score = result.model.score(result.instance.associations)
    assert metrics["accuracy"] == score.accuracy == 1
    assert metrics["min_relative_margin"] == score.min_relative_margin
    assert metrics["iterations"] == result.metrics["iterations"]
    assert spec.task().identity == spec.identity()


def test_rejects_unknown_methods_and_missing_options():
    with pytest.raises(FactmemError, match="unknown method 'x'; choose from hebbian"):
        replace(SPEC, method="x").run()
    with pytest.raises(FactmemError, match=r"^width is required for hermite$"):
        replace(SPEC, width=None).run()
    with pytest.raises(FactmemError, match=r"^rank cannot be used with hermite$"):
        replace(SPEC, rank=2).run()


@pytest.mark.parametrize("method", list(MEMORY_METHODS))
def test_the_cost_is_positive_and_grows_with_size(method):
    spec = MemorySpec(method=method, dim=8, facts=16, width=8)
    cost = spec.cost()
    assert min(cost.steps, cost.flops_per_step, cost.flops, cost.peak_bytes, cost.overhead) > 0
    for change in ({"dim": 16}, {"facts": 32}, {"width": 16}, {"outputs": 64}):
        larger = replace(spec, **change).cost()
        assert larger.flops > cost.flops, change
        assert larger.peak_bytes > cost.peak_bytes, change


def test_the_cost_of_training_grows_with_its_steps():
    spec = MemorySpec(method="trained-linear", dim=8, facts=16)
    assert replace(spec, protocol=LINEAR_PROTOCOL).cost() == spec.cost()
    longer = replace(spec, protocol=replace(LINEAR_PROTOCOL, steps=2**13)).cost()
    assert longer.steps == 2 * spec.cost().steps
