"""Bits that models hold: against logarithms written out."""

import jax.random as jr
import numpy as np
import pytest

from factmem.bounds import stored_by_memory, stored_by_transformer
from factmem.facts import FactTable, PromptDistribution
from factmem.memories import Associations, LinearMemory, bits_needed, hebbian, rounded
from factmem.transformer import THEORY, Embeddings, attention_construction, recall


@pytest.fixture(scope="module")
def pairs():
    return Associations.draw(jr.key(0), facts=64, dim=16)


def log_loss_bits(memory, pairs, scale):
    scores = scale * np.asarray(memory.outputs(pairs.keys), float) @ np.asarray(pairs.values).T
    right = np.arange(pairs.facts), np.asarray(pairs.target)
    saved = np.log2(pairs.outputs) + scores[right] / np.log(2)
    return float((saved - np.log2(np.exp(scores).sum(axis=1))).sum())


def test_a_memory_that_recalls_some(pairs):
    memory = hebbian(pairs)
    held = stored_by_memory(memory, pairs)
    accuracy = memory.score(pairs).accuracy
    assert 0.2 < accuracy < 1
    assert held.accuracy == accuracy
    assert held.argmax_bits == pytest.approx(6 * 64 * accuracy)
    assert held.argmax_bits_per_parameter == pytest.approx(held.argmax_bits / 256)
    assert held.bits_per_weight is held.weight_bits is held.share is None
    assert held.log_loss_bits == pytest.approx(log_loss_bits(memory, pairs, held.scale), rel=1e-4)
    scales = np.geomspace(0.1, 100, 400)
    best = max(log_loss_bits(memory, pairs, scale) for scale in scales)
    assert held.log_loss_bits == pytest.approx(best, rel=1e-3)
    assert held.log_loss_bits < 6 * 64


def test_a_scale_that_is_given(pairs):
    memory = hebbian(pairs)
    held = stored_by_memory(memory, pairs, scale=2.0)
    assert held.scale == 2
    assert held.log_loss_bits == pytest.approx(log_loss_bits(memory, pairs, 2.0), rel=1e-4)


def test_a_memory_that_recalls_all_holds_all_its_bits():
    pairs = Associations.draw(jr.key(1), facts=16, dim=64)
    memory = hebbian(pairs)
    held = stored_by_memory(memory, pairs)
    assert held.argmax_bits == 64
    assert held.log_loss_bits == pytest.approx(64, abs=1e-3)
    assert held.log_loss_bits_per_parameter == pytest.approx(64 / 4096, abs=1e-6)
    assert held.bits_per_weight == bits_needed(memory, pairs)
    assert held.share == pytest.approx(64 / (4096 * held.bits_per_weight))


def test_a_lower_criterion_asks_for_fewer_bits(pairs):
    memory = hebbian(pairs)
    accuracy = memory.score(pairs).accuracy
    held = stored_by_memory(memory, pairs, criterion=0.75 * accuracy)
    few = held.bits_per_weight
    assert rounded(memory, few).score(pairs).accuracy >= 0.75 * accuracy
    assert few == 1 or rounded(memory, few - 1).score(pairs).accuracy < 0.75 * accuracy
    assert held.share == pytest.approx(held.argmax_bits / (256 * few))


def test_a_memory_that_is_worse_than_guessing_holds_nothing(pairs):
    held = stored_by_memory(LinearMemory(-hebbian(pairs).matrix), pairs)
    assert held.log_loss_bits == pytest.approx(0, abs=1e-2)


@pytest.fixture(scope="module")
def built():
    asked = PromptDistribution.of(FactTable.random(8, 2, 4, seed=1))
    embeddings = Embeddings.draw(jr.key(0), 256, asked.vocabulary, THEORY)
    return asked, attention_construction(jr.key(1), asked, embeddings, 128, block=2).model


def test_a_transformer_that_recalls_all(built):
    asked, model = built
    held = stored_by_transformer(model, asked, jr.key(2), prompts=2)
    assert held.accuracy == 1
    assert held.parameters == model.shape.parameters
    assert held.argmax_bits == pytest.approx(asked.table.association_bits)
    assert 0 < held.log_loss_bits <= held.argmax_bits + 1e-3
    assert 1 <= held.bits_per_weight <= 16
    assert held.share < 1


def test_a_transformer_with_the_wrong_facts(built):
    _, model = built
    other = PromptDistribution.of(FactTable.random(8, 2, 4, seed=2))
    held = stored_by_transformer(model, other, jr.key(2), prompts=2)
    assert held.accuracy < 1
    assert held.bits_per_weight is None
    assert held.argmax_bits == pytest.approx(held.accuracy * other.table.association_bits)


def test_training_counts_sampled_prompts(built):
    _, model = built
    other = PromptDistribution.of(FactTable.random(8, 2, 4, seed=2))
    strict = stored_by_transformer(model, other, jr.key(2), prompts=2)
    sampled = stored_by_transformer(
        model, other, jr.key(2), prompts=2, criterion=strict.accuracy / 2, worst_noise=False
    )
    assert sampled.accuracy == recall(model, other, jr.key(2), 2).sampled_accuracy
    assert sampled.accuracy >= strict.accuracy
    assert sampled.bits_per_weight is not None
