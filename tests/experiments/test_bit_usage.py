"""Measured bits and losses agree with the models that they describe."""

import json
import math
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem.experiments import (
    Attention,
    Compile,
    MemorySpec,
    PromptSpec,
    TableSpec,
    Task,
    Train,
    TransformerSpec,
)
from factmem.experiments.bit_usage import (
    MEMORY_BITS,
    TRANSFORMER_BITS,
    ZIPF_LOSS,
    expected_loss,
    measure_memory_bits,
    measure_transformer_bits,
    measure_zipf_loss,
)
from factmem.facts import FactTable, PromptDistribution
from factmem.memories import Associations, bits_needed, hebbian
from factmem.training import Protocol
from factmem.transformer import Shape, Transformer

MEMORY = MemorySpec(method="hebbian", facts=32, outputs=16, dim=64, target="uniform", seed=6)
TRANSFORMER = TransformerSpec(
    table=TableSpec.random(4, 2, 2),
    shape=Shape(96, 1, 96, 0),
    method=Attention(block_size=1),
    prompts=PromptSpec(noise=4, length=8),
    seed=1,
)
ZIPF = TransformerSpec(
    table=TableSpec.random(6, 2, 4),
    shape=Shape(8, 2, 4, 8),
    method=Train(
        protocol=Protocol((1e-9, 3e-2), steps=200, batch_size=64, evaluations=1, test_prompts=64),
        stop_when_one_succeeds=False,
    ),
    prompts=PromptSpec(noise=1, length=3, subject_power=1.0),
)
STRICT = {"criterion": 1.0, "worst_noise": True}


def test_bits_of_a_memory_of_a_random_map():
    metrics = measure_memory_bits(**MEMORY.config(), criterion=1.0)
    json.dumps(metrics, allow_nan=False)
    associations_key, _, target_key = jr.split(jr.key(6), 3)
    pairs = Associations.draw(32, 64, 16, key=associations_key)
    target = jr.randint(target_key, (32,), 0, 16, dtype=jnp.int32)
    pairs = Associations(pairs.keys, pairs.values, target)
    memory = hebbian(pairs)
    assert metrics["parameters"] == 4096
    assert metrics["accuracy"] == memory.score(pairs).accuracy == 1
    assert metrics["argmax_bits"] == 4 * 32
    assert metrics["bits_per_weight"] == bits_needed(memory, pairs)
    assert metrics["weight_bits"] == 4096 * metrics["bits_per_weight"]
    assert metrics["usage"] == pytest.approx(128 / metrics["weight_bits"])
    lenient = measure_memory_bits(**MEMORY.config(), criterion=0.5)
    expected = bits_needed(memory, pairs, 0.5)
    assert lenient["bits_per_weight"] == expected < metrics["bits_per_weight"]


def test_bits_of_a_constructed_transformer():
    metrics = measure_transformer_bits(**TRANSFORMER.config(), **STRICT)
    json.dumps(metrics, allow_nan=False)
    assert metrics["heads"] == 6  # one for each subject and relation
    assert metrics["parameters"] == 4 * 6 * 96 * 96
    assert metrics["accuracy"] == 1
    table = FactTable.random(4, 2, 2, seed=1)
    assert metrics["argmax_bits"] == pytest.approx(table.association_bits)
    assert metrics["usage"] == pytest.approx(metrics["argmax_bits"] / metrics["weight_bits"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["compiled", "trained"])
def test_bits_of_compiled_and_trained_transformers(method):
    shape = Shape(12, 4, 3, 12)
    training = Train(protocol=Protocol((3e-2,), steps=400, batch_size=64, evaluations=8))
    if method == "compiled":
        spec, criteria = replace(TRANSFORMER, shape=shape, method=Compile()), STRICT
    else:
        spec = replace(TRANSFORMER, shape=shape, method=training)
        criteria = {"criterion": 0.9, "worst_noise": False}
    metrics = measure_transformer_bits(**spec.config(), **criteria)
    assert metrics["parameters"] == 4 * 12 * 12 + 2 * 12 * 12
    assert metrics["accuracy"] >= 0.9
    assert metrics["bits_per_weight"] is not None


def test_the_expected_loss_weighs_facts_by_their_probabilities():
    """Without noise, the loss of every fact is computed by hand."""
    table = FactTable.random(6, 2, 4, seed=0)
    prompts = PromptDistribution.from_table(table, noise=1, length=3)
    model = Transformer.draw(Shape(8, 2, 4, 8), prompts.vocabulary, key=jr.key(0))
    subjects, _, answers = table.fact_ids
    counts = prompts.sample_counts(jnp.arange(12), key=jr.key(5))
    logits = np.asarray(eqx.filter_jit(Transformer.logits)(model, counts), float)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), answers]
    probabilities = 1 / (1 + subjects)
    probabilities /= probabilities.sum()
    loss = expected_loss(model, prompts, probabilities, key=jr.key(1), prompts_per_fact=2)
    assert loss == pytest.approx(losses @ probabilities, rel=1e-5)


@pytest.mark.slow
def test_the_zipf_loss_is_that_of_the_best_learning_rate():
    metrics = measure_zipf_loss(**ZIPF.config(), prompts_per_fact=1)
    json.dumps(metrics, allow_nan=False)
    assert metrics["parameters"] == 4 * 8 * 8 + 2 * 8 * 8
    assert metrics["loss_nats"] == min(metrics["losses_nats"]) == metrics["losses_nats"][1]
    assert metrics["loss_bits"] == pytest.approx(metrics["loss_nats"] / math.log(2))
    assert metrics["learning_rate"] == 3e-2
    assert metrics["losses_nats"][0] > math.log(4) > metrics["losses_nats"][1]


@pytest.mark.parametrize(
    ("experiment", "spec"),
    [(MEMORY_BITS, MEMORY), (TRANSFORMER_BITS, TRANSFORMER), (ZIPF_LOSS, ZIPF)],
)
def test_the_identity_depends_on_the_seed(experiment, spec):
    other = replace(spec, seed=9)
    assert Task(experiment, spec.config()).identity != Task(experiment, other.config()).identity
