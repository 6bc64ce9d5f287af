"""Bits that models store, against explicit logarithms."""

import jax.random as jr
import numpy as np
import pytest

from factmem.bounds import bits_stored_by_memory, bits_stored_by_transformer
from factmem.facts import FactTable, PromptDistribution
from factmem.memories import Associations, LinearMemory, bits_needed, hebbian, rounded
from factmem.transformer import THEORY_CONVENTION, Embeddings, attention_construction, recall


@pytest.fixture(scope="module")
def pairs():
    return Associations.draw(facts=64, dim=16, key=jr.key(0))


def log_loss_bits(memory, pairs, scale):
    scores = scale * np.asarray(memory.outputs(pairs.keys), float) @ np.asarray(pairs.values).T
    right = np.arange(pairs.facts), np.asarray(pairs.target)
    saved = np.log2(pairs.outputs) + scores[right] / np.log(2)
    return float((saved - np.log2(np.exp(scores).sum(axis=1))).sum())


def test_memory_with_partial_recall(pairs):
    memory = hebbian(pairs)
    stored = bits_stored_by_memory(memory, pairs)
    accuracy = memory.score(pairs).accuracy
    assert 0.2 < accuracy < 1
    assert stored.accuracy == accuracy
    assert stored.argmax_bits == pytest.approx(6 * 64 * accuracy)
    assert stored.argmax_bits_per_parameter == pytest.approx(stored.argmax_bits / 256)
    assert stored.bits_per_weight is stored.weight_bits is stored.usage is None
    assert stored.log_loss_bits == pytest.approx(
        log_loss_bits(memory, pairs, stored.scale), rel=1e-4
    )
    scales = np.geomspace(0.1, 100, 400)
    best = max(log_loss_bits(memory, pairs, scale) for scale in scales)
    assert stored.log_loss_bits == pytest.approx(best, rel=1e-3)
    assert stored.log_loss_bits < 6 * 64


def test_given_scale(pairs):
    memory = hebbian(pairs)
    stored = bits_stored_by_memory(memory, pairs, scale=2.0)
    assert stored.scale == 2
    assert stored.log_loss_bits == pytest.approx(log_loss_bits(memory, pairs, 2.0), rel=1e-4)


def test_memory_with_full_recall_stores_all_bits():
    pairs = Associations.draw(facts=16, dim=64, key=jr.key(1))
    memory = hebbian(pairs)
    stored = bits_stored_by_memory(memory, pairs)
    assert stored.argmax_bits == 64
    assert stored.log_loss_bits == pytest.approx(64, abs=1e-3)
    assert stored.log_loss_bits_per_parameter == pytest.approx(64 / 4096, abs=1e-6)
    assert stored.bits_per_weight == bits_needed(memory, pairs)
    assert stored.usage == pytest.approx(64 / (4096 * stored.bits_per_weight))


def test_lower_criterion_needs_fewer_bits_per_weight(pairs):
    memory = hebbian(pairs)
    accuracy = memory.score(pairs).accuracy
    stored = bits_stored_by_memory(memory, pairs, criterion=0.75 * accuracy)
    few = stored.bits_per_weight
    assert rounded(memory, few).score(pairs).accuracy >= 0.75 * accuracy
    assert few == 1 or rounded(memory, few - 1).score(pairs).accuracy < 0.75 * accuracy
    assert stored.usage == pytest.approx(stored.argmax_bits / (256 * few))


def test_memory_worse_than_guessing_stores_nothing(pairs):
    stored = bits_stored_by_memory(LinearMemory(-hebbian(pairs).matrix), pairs)
    assert stored.log_loss_bits == pytest.approx(0, abs=1e-2)


@pytest.fixture(scope="module")
def built():
    prompts = PromptDistribution.from_table(FactTable.random(8, 2, 4, seed=1))
    embeddings = Embeddings.draw(256, prompts.vocabulary, THEORY_CONVENTION, key=jr.key(0))
    return prompts, attention_construction(
        prompts, embeddings, 128, key=jr.key(1), block_size=2
    ).model


def test_transformer_with_full_recall(built):
    prompts, model = built
    stored = bits_stored_by_transformer(model, prompts, key=jr.key(2), prompts_per_fact=2)
    assert stored.accuracy == 1
    assert stored.parameters == model.shape.parameters
    assert stored.argmax_bits == pytest.approx(prompts.table.association_bits)
    assert 0 < stored.log_loss_bits <= stored.argmax_bits + 1e-3
    assert 1 <= stored.bits_per_weight <= 16
    assert stored.usage < 1


def test_transformer_with_wrong_facts(built):
    _, model = built
    other = PromptDistribution.from_table(FactTable.random(8, 2, 4, seed=2))
    stored = bits_stored_by_transformer(model, other, key=jr.key(2), prompts_per_fact=2)
    assert stored.accuracy < 1
    assert stored.bits_per_weight is None
    assert stored.argmax_bits == pytest.approx(stored.accuracy * other.table.association_bits)


def test_accuracy_on_sampled_prompts_only(built):
    _, model = built
    other = PromptDistribution.from_table(FactTable.random(8, 2, 4, seed=2))
    strict = bits_stored_by_transformer(model, other, key=jr.key(2), prompts_per_fact=2)
    sampled = bits_stored_by_transformer(
        model,
        other,
        key=jr.key(2),
        prompts_per_fact=2,
        criterion=strict.accuracy / 2,
        worst_noise=False,
    )
    expected = recall(model, other, key=jr.key(2), prompts_per_fact=2)
    assert sampled.accuracy == expected.sampled_accuracy
    assert sampled.accuracy >= strict.accuracy
    assert sampled.bits_per_weight is not None
