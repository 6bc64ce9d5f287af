"""Specs of transformers: instances, embeddings, identities and costs."""

import json
from dataclasses import replace

import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import factmem.training
from factmem._core.canonical_json import canonical_json
from factmem._core.errors import FactmemError
from factmem.experiments import (
    TRANSFORMER_METHODS,
    Attention,
    AttentionMLP,
    Compile,
    PromptSpec,
    TableSpec,
    Train,
    TransformerSpec,
    execute,
)
from factmem.facts import FactTable
from factmem.training import BEST, PAPER, QUICK, step_flops
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    Embeddings,
    Shape,
    Transformer,
)

SHAPE = Shape(12, 3, 4, 10)
PADDING = {"subjects": 8, "relations": 8, "noise": 16, "answers": 20, "facts": 60}
SHORT = replace(PAPER, learning_rates=(0.003, 0.01), steps=4, evaluations=2, batch_size=16)
SPEC = TransformerSpec(
    table=TableSpec.random(6, 5, 3),
    shape=SHAPE,
    method=Train(protocol=SHORT),
    prompts=PromptSpec(noise=7, length=8),
    seed=3,
)
METHODS = {
    "attention": Attention(block_size=2),
    "mlp": AttentionMLP(),
    "compiled": Compile(),
    "trained": Train(protocol=SHORT),
}

sizes = st.integers(1, 10**4)
rates = st.floats(1e-6, 10) | st.just(1.0)
paddings = st.none() | st.builds(
    lambda numbers, model: {**dict(zip(PADDING, numbers, strict=True)), **model},
    numbers=st.lists(sizes, min_size=5, max_size=5),
    model=st.sampled_from([{}, {"heads": 8}, {"heads": 8, "width": 64}]),
)
options = {
    "attention": {"block_size": st.none() | sizes},
    "mlp": {"block_size": st.none() | sizes},
    "compiled": {"dim": st.none() | sizes},
    "trained": {"padding": paddings, "stop_when_one_succeeds": st.booleans()},
}
protocol_changes = st.fixed_dictionaries(
    {
        "learning_rates": st.lists(rates, min_size=1, max_size=3).map(tuple),
        "steps": st.integers(128, 10**5),
        "momentum": st.sampled_from([0.0, 0.9]),
    }
)
tables = st.builds(
    TableSpec,
    kind=st.sampled_from(["random", "structured"]),
    subjects=sizes,
    relations=sizes,
    answers=sizes,
)
shapes = st.builds(Shape, sizes, sizes, sizes, st.integers(0, 10**4))
prompt_specs = st.builds(
    PromptSpec, noise=st.none() | sizes, length=sizes, subject_power=st.floats(0, 3)
)


def test_the_methods_in_order():
    assert list(TRANSFORMER_METHODS) == ["attention", "mlp", "compiled", "trained"]
    assert list(TRANSFORMER_METHODS.values()) == [Attention, AttentionMLP, Compile, Train]
    assert all(method.name == name for name, method in TRANSFORMER_METHODS.items())


@pytest.mark.parametrize("method", options)
@given(data=st.data())
def test_specs_round_trip_through_json(method, data):
    chosen = data.draw(st.fixed_dictionaries(options[method]))
    if method == "trained":
        base = data.draw(st.sampled_from([PAPER, BEST, QUICK]))
        chosen["protocol"] = replace(base, **data.draw(protocol_changes))
    spec = TransformerSpec(
        table=data.draw(tables),
        shape=data.draw(st.none() | shapes),
        method=TRANSFORMER_METHODS[method](**chosen),
        prompts=data.draw(prompt_specs),
        seed=data.draw(st.integers(0, 2**31 - 1)),
    )
    restored = TransformerSpec.from_config(json.loads(canonical_json(spec.config())))
    noise = spec.prompts.noise
    if noise is None:
        noise = spec.table.subjects + spec.table.relations
    resolved = replace(spec, prompts=replace(spec.prompts, noise=noise))
    assert restored == resolved
    if method != "trained" or chosen["padding"] is None:  # JSON sorts the entries of a padding
        assert repr(restored) == repr(resolved), "the types are the same too"
    assert restored.config() == spec.config()
    assert restored.identity() == spec.identity()


@pytest.mark.parametrize(
    "change",
    [
        {"table": TableSpec.structured(6, 5, 3)},
        {"table": TableSpec.random(7, 5, 3)},
        {"table": TableSpec.random(6, 4, 3)},
        {"table": TableSpec.random(6, 5, 4)},
        *({"shape": replace(SHAPE, **{name: 6})} for name in ("dim", "heads", "head_dim", "width")),
        {"shape": None},
        *({"method": METHODS[name]} for name in ("attention", "mlp", "compiled")),
        *({"method": Train(protocol=protocol)} for protocol in (PAPER, BEST, QUICK)),
        {"method": Train(protocol=SHORT, padding=PADDING)},
        {"method": Train(protocol=SHORT, stop_when_one_succeeds=False)},
        {"prompts": PromptSpec(noise=8, length=8)},
        {"prompts": PromptSpec(length=8)},
        {"prompts": PromptSpec(noise=7, length=9)},
        {"prompts": PromptSpec(noise=7, length=8, subject_power=0.5)},
        {"seed": 4},
    ],
    ids=str,
)
def test_every_field_changes_the_identity(change):
    assert replace(SPEC, **change).identity() != SPEC.identity()


@pytest.mark.parametrize(
    "options",
    [
        (Attention(), Attention(block_size=1), Attention(block_size=2)),
        (AttentionMLP(), AttentionMLP(block_size=1), Attention(block_size=1)),
        (Compile(), Compile(dim=8), Compile(dim=16)),
    ],
)
def test_every_option_of_a_method_changes_the_identity(options):
    identities = {replace(SPEC, shape=None, method=method).identity() for method in options}
    assert len(identities) == 3


def test_every_number_of_a_protocol_changes_the_identity():
    changes = {
        "learning_rates": (0.01,),
        "steps": 8,
        "batch_size": 17,
        "stratified": True,
        "optimizer": "muon",
        "schedule": "cosine",
        "momentum": 0.5,
        "beta2": 0.5,
        "evaluations": 4,
        "test_prompts": 7,
        "criterion": 0.5,
        "early_stopping": ((0.5, 0.5),),
        "hard_noise": 0.5,
    }
    assert set(changes) == set(SHORT.__dataclass_fields__)
    identities = {SPEC.identity()}
    for name, value in changes.items():
        protocol = replace(SHORT, **{name: value})
        identities.add(replace(SPEC, method=Train(protocol=protocol)).identity())
    assert len(identities) == len(changes) + 1


def test_hard_noise_is_in_the_configuration_only_if_there_is_any():
    """So that runs stored before there was hard noise are still found."""
    assert "hard_noise" not in SPEC.config()["training"]
    method = Train(protocol=replace(SHORT, hard_noise=0.5))
    config = replace(SPEC, method=method).config()
    assert config["training"]["hard_noise"] == 0.5
    assert TransformerSpec.from_config(config).method == method


@pytest.mark.parametrize("method", METHODS)
def test_draw_splits_the_key_of_the_seed_in_three(method):
    instance = replace(SPEC, method=METHODS[method]).draw()
    table = FactTable.random(6, 5, 3, seed=3)
    assert np.array_equal(instance.table.answer_of, table.answer_of)
    keys = jr.split(jr.key(3), 3)
    assert instance.start_key == keys[0]
    assert instance.method_key == keys[1]
    assert instance.test_key == keys[2]
    assert (instance.prompts.length, instance.vocabulary.noise) == (8, 7)
    assert np.array_equal(instance.prompts.table.answer_of, table.answer_of)


def test_draw_depends_only_on_the_seed():
    first, again, other = SPEC.draw(), replace(SPEC).draw(), replace(SPEC, seed=4).draw()
    assert np.array_equal(first.table.answer_of, again.table.answer_of)
    assert first.start_key == again.start_key != other.start_key
    assert not np.array_equal(first.table.answer_of, other.table.answer_of)


class TrainingStarted(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("stop_when_one_succeeds", [True, False])
def test_draw_embeddings_gives_those_at_the_start_of_training(monkeypatch, stop_when_one_succeeds):
    starts = []

    def start_training(runs, protocol, **_):
        starts.extend(run.initial_model.embeddings for run in runs)
        raise TrainingStarted

    monkeypatch.setattr(factmem.training, "train_transformers", start_training)
    spec = replace(
        SPEC, method=Train(protocol=SHORT, stop_when_one_succeeds=stop_when_one_succeeds)
    )
    with pytest.raises(TrainingStarted):
        spec.run()
    drawn = spec.draw_embeddings()
    assert len(starts) == 2
    for embeddings in starts:
        assert np.array_equal(embeddings.tokens, drawn.tokens)
        assert np.array_equal(embeddings.outputs, drawn.outputs)
    model = Transformer.draw(SHAPE, spec.draw().vocabulary, key=jr.split(jr.key(3), 3)[0])
    assert np.array_equal(model.embeddings.outputs, drawn.outputs)


@pytest.mark.parametrize(
    ("method", "convention"),
    [
        ("attention", THEORY_CONVENTION),
        ("mlp", THEORY_CONVENTION),
        ("compiled", EXPERIMENT_CONVENTION),
    ],
)
def test_draw_embeddings_follows_the_convention_of_the_method(method, convention):
    spec = replace(SPEC, method=METHODS[method])
    key, vocabulary = jr.split(jr.key(3), 3)[0], spec.draw().vocabulary
    expected = Embeddings.draw(12, vocabulary, convention, key=key)
    assert np.array_equal(spec.draw_embeddings().tokens, expected.tokens)
    assert np.array_equal(spec.draw_embeddings().outputs, expected.outputs)


def test_the_embeddings_of_a_compiled_model_are_those_drawn():
    table, shape = TableSpec.random(3, 3, 2), Shape(8, 3, 3, 8)
    spec = replace(SPEC, table=table, shape=shape, method=Compile())
    result, drawn = spec.run(), spec.draw_embeddings()
    assert np.array_equal(result.model.embeddings.outputs, drawn.outputs)
    assert result.instance.recall(result.model, 2).accuracy == 1
    assert result.metrics["status"] == result.status.label
    assert result.seconds >= 0


def test_embeddings_need_a_shape():
    with pytest.raises(FactmemError, match="embeddings have no dimension"):
        replace(SPEC, shape=None).draw_embeddings()


def test_the_task_of_a_spec_is_executed_from_its_configuration():
    task = SPEC.task()
    metrics = execute(task).metrics
    assert task.identity == SPEC.identity()
    assert (metrics["facts"], metrics["parameters"]) == (30, SHAPE.parameters)
    assert metrics["total_steps"] == 8, "four steps of each of two runs"
    assert metrics["flops"] == 8 * step_flops(SHAPE, SPEC.draw().vocabulary, SHORT.batch_size)
    assert 0 <= metrics["worst_case_accuracy"] <= metrics["accuracy"] <= 1


@pytest.mark.parametrize("method", METHODS)
def test_the_cost_is_positive_and_grows_with_size(method):
    spec = replace(SPEC, method=METHODS[method])
    cost = spec.cost()
    assert min(cost.steps, cost.flops_per_step, cost.flops, cost.peak_bytes, cost.overhead) > 0
    for name in ("dim", "heads", "head_dim", "width"):
        shape = replace(SHAPE, **{name: 2 * getattr(SHAPE, name)})
        larger = replace(spec, shape=shape).cost()
        assert larger.flops > cost.flops, name
        assert larger.peak_bytes > cost.peak_bytes, name
    for table in (TableSpec.random(12, 5, 3), TableSpec.random(6, 10, 3)):
        larger = replace(spec, table=table).cost()
        assert larger.flops > cost.flops
        assert larger.peak_bytes > cost.peak_bytes


def test_the_cost_of_training_grows_with_its_protocol():
    cost = SPEC.cost()
    for change in ({"learning_rates": (0.1,) * 3}, {"steps": 8}, {"batch_size": 32}):
        protocol = replace(SHORT, **change)
        assert replace(SPEC, method=Train(protocol=protocol)).cost().flops > cost.flops


def test_the_cost_needs_a_shape():
    with pytest.raises(FactmemError, match="estimated for a given shape"):
        replace(SPEC, shape=None).cost()
