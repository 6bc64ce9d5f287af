"""What is measured of models is what the models themselves say."""

import json
import math
from dataclasses import asdict

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem.bounds import stored_by_memory, stored_by_transformer
from factmem.bounds.held import (
    MEMORY_BITS,
    TRANSFORMER_BITS,
    ZIPF_LOSS,
    measure_memory_bits,
    measure_transformer_bits,
    measure_zipf_loss,
)
from factmem.facts import FactTable, PromptDistribution
from factmem.memories import Associations, hebbian
from factmem.methods import drawn
from factmem.runs import Task
from factmem.training import Protocol
from factmem.transformer import THEORY, Embeddings, attention_construction

MEMORY = {
    "method": "hebbian",
    "facts": 32,
    "outputs": 16,
    "dim": 40,
    "sizes": {},
    "criterion": 1.0,
    "seed": 3,
}
TRANSFORMER = {
    "method": "attention",
    "dim": 128,
    "heads": None,
    "head_dim": 64,
    "width": 0,
    "subjects": 6,
    "relations": 2,
    "answers": 4,
    "noise": 8,
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
    pairs, _, key = drawn(3, 32, 40, 16)
    target = jr.randint(key, (32,), 0, 16, dtype=jnp.int32)
    held = stored_by_memory(hebbian(Associations(pairs.keys, pairs.values, target)), pairs)
    assert found["parameters"] == held.parameters == 1600
    again = Associations(pairs.keys, pairs.values, target)
    held = stored_by_memory(hebbian(again), again)
    assert found["argmax_bits"] == held.argmax_bits
    assert found["weight_bits"] == held.weight_bits
    assert found["share"] == held.share


def test_a_lower_criterion_needs_fewer_bits():
    strict = measure_memory_bits(**MEMORY | {"facts": 48, "dim": 64, "seed": 0})
    loose = measure_memory_bits(**MEMORY | {"facts": 48, "dim": 64, "seed": 0, "criterion": 0.5})
    assert strict["accuracy"] == 1
    assert loose["bits_per_weight"] < strict["bits_per_weight"]
    assert loose["share"] > strict["share"]


def test_a_transformer_that_was_built():
    found = measure_transformer_bits(**TRANSFORMER)
    json.dumps(found, allow_nan=False)
    asked = PromptDistribution.of(FactTable.random(6, 2, 4, seed=1), noise=8, length=8)
    keys = jr.split(jr.key(1), 3)
    embeddings = Embeddings.draw(keys[0], 128, asked.vocabulary, THEORY)
    model = attention_construction(keys[1], asked, embeddings, 64).model
    held = stored_by_transformer(model, asked, keys[2])
    assert found["parameters"] == held.parameters
    assert found["heads"] == model.shape.heads
    assert found["bits_per_weight"] == held.bits_per_weight
    assert found["argmax_bits"] == held.argmax_bits


def test_a_transformer_that_was_trained_and_one_that_was_compiled():
    shape = {"dim": 12, "heads": 4, "head_dim": 3, "width": 12}
    training = asdict(Protocol((3e-2,), steps=400, batch=64, checks=8))
    lenient = {"method": "trained", "training": training, "criterion": 0.9, "worst_noise": False}
    for how in ({"method": "compiled"}, lenient):
        found = measure_transformer_bits(**TRANSFORMER | shape | how)
        assert found["parameters"] == 4 * 12 * 12 + 2 * 12 * 12
        assert found["accuracy"] >= 0.9
        assert found["bits_per_weight"] is not None


def test_a_loss_under_zipf_questions_is_that_of_the_best_rate():
    found = measure_zipf_loss(**ZIPF)
    json.dumps(found, allow_nan=False)
    assert found["parameters"] == 4 * 8 * 8 + 2 * 8 * 8
    assert found["loss_nats"] == min(found["losses_nats"]) == found["losses_nats"][1]
    assert found["loss_bits"] == pytest.approx(found["loss_nats"] / math.log(2))
    assert found["learning_rate"] == 3e-2
    # From nothing, all 8 answers are about equally likely.
    assert found["losses_nats"][0] > math.log(4)


def test_a_loss_weighs_facts_by_their_chances():
    """Untrained, one prompt a fact and no noise: every chance and every loss written out."""
    still = asdict(Protocol((1e-9,), steps=1, checks=1, batch=8, prompts=8))
    found = measure_zipf_loss(**ZIPF | {"training": still})
    table = FactTable.random(6, 2, 4, seed=0)
    asked = PromptDistribution.of(table, noise=1, length=3)
    from factmem.transformer import Shape, Transformer

    model = Transformer.draw(jr.split(jr.key(0), 3)[0], Shape(8, 2, 4, 8), asked.vocabulary)
    subjects, _, answers = table.fact_ids
    every = jnp.arange(12, dtype=jnp.int32)
    logits = np.asarray(model.logits(asked.counts(jr.key(5), every)), float)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), answers]
    chances = 1 / (1 + subjects)
    assert found["loss_nats"] == pytest.approx(losses @ chances / chances.sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("measure", "config"),
    [(MEMORY_BITS, MEMORY), (TRANSFORMER_BITS, TRANSFORMER), (ZIPF_LOSS, ZIPF)],
)
def test_a_measurement_is_filed_under_all_its_numbers(measure, config):
    assert Task(measure, config).identity != Task(measure, config | {"seed": 9}).identity
