"""What is measured of models is what the models themselves say."""

import json
import math
from dataclasses import asdict

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem.experiments import Task
from factmem.experiments.bit_usage import (
    MEMORY_BITS,
    TRANSFORMER_BITS,
    ZIPF_LOSS,
    expected_loss,
    measure_memory_bits,
    measure_transformer_bits,
    measure_zipf_loss,
)
from factmem.experiments.memory_methods import drawn
from factmem.facts import FactTable, PromptDistribution
from factmem.memories import Associations, bits_needed, hebbian
from factmem.training import Protocol
from factmem.transformer import Shape, Transformer

MEMORY = {
    "method": "hebbian",
    "facts": 32,
    "outputs": 16,
    "dim": 64,
    "sizes": {},
    "criterion": 1.0,
    "seed": 6,
}
TRANSFORMER = {
    "method": "attention",
    "dim": 96,
    "heads": None,
    "head_dim": 96,
    "width": 0,
    "block": 1,
    "subjects": 4,
    "relations": 2,
    "answers": 2,
    "noise": 4,
    "length": 8,
    "training": None,
    "criterion": 1.0,
    "worst_noise": True,
    "seed": 1,
}
PROTOCOL = Protocol((1e-9, 3e-2), steps=200, batch=64, checks=1, prompts=64)
ZIPF = {
    "subjects": 6,
    "relations": 2,
    "answers": 4,
    "subject_power": 1.0,
    "noise": 1,
    "length": 3,
    "dim": 8,
    "heads": 2,
    "head_dim": 4,
    "width": 8,
    "training": asdict(PROTOCOL),
    "prompts": 1,
    "seed": 0,
}


def test_a_memory_of_a_random_map():
    found = measure_memory_bits(**MEMORY)
    json.dumps(found, allow_nan=False)
    pairs, _, key = drawn(6, 32, 64, 16)
    target = jr.randint(key, (32,), 0, 16, dtype=jnp.int32)
    pairs = Associations(pairs.keys, pairs.values, target)
    memory = hebbian(pairs)
    assert found["parameters"] == 4096
    assert found["accuracy"] == memory.score(pairs).accuracy == 1
    assert found["argmax_bits"] == 4 * 32
    assert found["bits_per_weight"] == bits_needed(memory, pairs)
    assert found["weight_bits"] == 4096 * found["bits_per_weight"]
    assert found["share"] == pytest.approx(128 / found["weight_bits"])
    loose = measure_memory_bits(**MEMORY | {"criterion": 0.5})
    assert loose["bits_per_weight"] == bits_needed(memory, pairs, 0.5) < found["bits_per_weight"]


def test_a_transformer_that_was_built():
    found = measure_transformer_bits(**TRANSFORMER)
    json.dumps(found, allow_nan=False)
    assert found["heads"] == 6  # one for each subject and relation
    assert found["parameters"] == 4 * 6 * 96 * 96
    assert found["accuracy"] == 1
    assert found["argmax_bits"] == pytest.approx(FactTable.random(4, 2, 2, seed=1).association_bits)
    assert found["share"] == pytest.approx(found["argmax_bits"] / found["weight_bits"])


@pytest.mark.slow
def test_a_transformer_that_was_trained_and_one_that_was_compiled():
    shape = {"dim": 12, "heads": 4, "head_dim": 3, "width": 12}
    training = asdict(Protocol((3e-2,), steps=400, batch=64, checks=8))
    lenient = {"method": "trained", "training": training, "criterion": 0.9, "worst_noise": False}
    for how in ({"method": "compiled"}, lenient):
        found = measure_transformer_bits(**TRANSFORMER | shape | how)
        assert found["parameters"] == 4 * 12 * 12 + 2 * 12 * 12
        assert found["accuracy"] >= 0.9
        assert found["bits_per_weight"] is not None


def test_a_loss_weighs_facts_by_their_chances():
    """Without noise, every chance and every loss written out."""
    table = FactTable.random(6, 2, 4, seed=0)
    asked = PromptDistribution.of(table, noise=1, length=3)
    model = Transformer.draw(jr.key(0), Shape(8, 2, 4, 8), asked.vocabulary)
    subjects, _, answers = table.fact_ids
    counts = asked.counts(jr.key(5), jnp.arange(12))
    logits = np.asarray(eqx.filter_jit(Transformer.logits)(model, counts), float)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), answers]
    chances = 1 / (1 + subjects)
    chances /= chances.sum()
    found = expected_loss(model, asked, chances, jr.key(1), prompts=2)
    assert found == pytest.approx(losses @ chances, rel=1e-5)


@pytest.mark.slow
def test_a_loss_under_zipf_questions_is_that_of_the_best_rate():
    found = measure_zipf_loss(**ZIPF)
    json.dumps(found, allow_nan=False)
    assert found["parameters"] == 4 * 8 * 8 + 2 * 8 * 8
    assert found["loss_nats"] == min(found["losses_nats"]) == found["losses_nats"][1]
    assert found["loss_bits"] == pytest.approx(found["loss_nats"] / math.log(2))
    assert found["learning_rate"] == 3e-2
    assert found["losses_nats"][0] > math.log(4) > found["losses_nats"][1]


@pytest.mark.parametrize(
    ("measure", "config"),
    [(MEMORY_BITS, MEMORY), (TRANSFORMER_BITS, TRANSFORMER), (ZIPF_LOSS, ZIPF)],
)
def test_a_measurement_is_filed_under_all_its_numbers(measure, config):
    assert Task(measure, config).identity != Task(measure, config | {"seed": 9}).identity
