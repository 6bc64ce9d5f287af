"""Recall checks every fact, and counts it only if every prompt is answered correctly."""

from importlib import import_module

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    Shape,
    Transformer,
    dense_logits,
    recall,
)
from factmem.transformer.constructions.denoiser import strongest_noise

TABLE = FactTable.random(5, 3, 2, seed=1)
PROMPTS = PromptDistribution.from_table(TABLE, noise=4, length=7)

jitted_logits = eqx.filter_jit(dense_logits)
jitted_batch_logits = eqx.filter_jit(eqx.filter_vmap(dense_logits, in_axes=(None, 0)))


@pytest.mark.parametrize("convention", [THEORY_CONVENTION, EXPERIMENT_CONVENTION])
def test_adversarial_recall_matches_the_dense_form(convention):
    model = Transformer.draw(Shape(6, 2, 3, 5), PROMPTS.vocabulary, convention, key=jr.key(3))
    model = eqx.tree_at(lambda m: m.weights.key, model, 8 * model.weights.key)
    result = recall(model, PROMPTS, key=jr.key(4), prompts_per_fact=0)
    vocabulary = PROMPTS.vocabulary
    outputs = np.asarray(model.embeddings.outputs, float)
    noise = strongest_noise(model.scores(), vocabulary)
    margins = []
    for s, r, a in zip(*TABLE.fact_ids, strict=True):
        target = int(model.targets(jnp.asarray([a]))[0])
        fact_margins = []
        for token in noise:
            prompt = jnp.asarray([s, vocabulary.first_relation + r, *[token] * 4, vocabulary.eos])
            logits = np.asarray(jitted_logits(model, prompt), float)
            fact_margins.append(logits[target] - np.delete(logits, target).max())
        margins.append(min(fact_margins))
    assert result.facts == 15
    assert result.prompts_checked == len(noise)
    assert len(outputs) > target
    assert result.accuracy == np.mean(np.array(margins) > 0)
    assert result.min_margin == pytest.approx(min(margins), abs=1e-5)


@pytest.mark.parametrize("batch_size", [4096, 4])
def test_sampled_accuracy_matches_the_dense_form(monkeypatch, batch_size):
    module = import_module("factmem.transformer.recall")
    monkeypatch.setattr(module, "_MAX_BATCH", batch_size)
    model = Transformer.draw(Shape(12, 2, 6, 5), PROMPTS.vocabulary, key=jr.key(3))
    model = eqx.tree_at(lambda m: m.weights.key, model, 4 * model.weights.key)
    result = recall(model, PROMPTS, key=jr.key(4), prompts_per_fact=6)
    correct = []
    for batch_number, facts in enumerate(
        np.split(np.arange(15), range(batch_size, 15, batch_size))
    ):
        for number in range(6):
            key = jr.fold_in(jr.fold_in(jr.key(4), batch_number), number)
            batch = PROMPTS.sample(jnp.asarray(facts, jnp.int32), form="tokens", key=key)
            logits = jitted_batch_logits(model, batch.content)
            correct += (np.argmax(logits, axis=1) == np.asarray(batch.answers)).tolist()
    assert result.sampled_accuracy == pytest.approx(np.mean(correct))
    assert 0 < result.sampled_accuracy < 1
    assert result.accuracy < result.sampled_accuracy
    # Additional prompts have new noise.
    assert (
        recall(model, PROMPTS, key=jr.key(4), prompts_per_fact=40).sampled_accuracy
        != result.sampled_accuracy
    )


def test_sampled_accuracy_is_nan_without_samples():
    model = Transformer.draw(Shape(8, 1, 8), PROMPTS.vocabulary, THEORY_CONVENTION, key=jr.key(0))
    assert np.isnan(recall(model, PROMPTS, key=jr.key(1), prompts_per_fact=0).sampled_accuracy)


def test_more_prompts_never_increase_accuracy_or_margin():
    model = Transformer.draw(Shape(8, 1, 8), PROMPTS.vocabulary, THEORY_CONVENTION, key=jr.key(0))
    few = recall(model, PROMPTS, key=jr.key(1), prompts_per_fact=2)
    more = recall(model, PROMPTS, key=jr.key(1), prompts_per_fact=12)
    assert more.accuracy <= few.accuracy
    assert more.min_margin <= few.min_margin
    assert more.prompts_checked == few.prompts_checked + 10


def test_nan_outputs_are_not_recalled():
    model = Transformer.draw(Shape(8, 1, 8), PROMPTS.vocabulary, THEORY_CONVENTION, key=jr.key(0))
    broken = eqx.tree_at(lambda m: m.weights.output, model, jnp.nan * model.weights.output)
    result = recall(broken, PROMPTS, key=jr.key(1), prompts_per_fact=1)
    assert result.accuracy == result.sampled_accuracy == 0.0
    assert result.min_margin == -np.inf
