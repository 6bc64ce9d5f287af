"""Recall asks every fact, and counts it only if every prompt is answered."""

from importlib import import_module

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import EXPERIMENTS, THEORY, Shape, Transformer, dense_logits, recall
from factmem.transformer.constructions.denoiser import strongest_noise

TABLE = FactTable.random(5, 3, 2, seed=1)
ASKED = PromptDistribution.of(TABLE, noise=4, length=7)


@pytest.mark.parametrize("convention", [THEORY, EXPERIMENTS])
def test_recall_is_what_the_dense_form_finds_prompt_by_prompt(convention):
    model = Transformer.draw(jr.key(3), Shape(6, 2, 3, 5), ASKED.vocabulary, convention)
    model = eqx.tree_at(lambda m: m.weights.key, model, 8 * model.weights.key)
    found = recall(model, ASKED, jr.key(4), sampled=0)
    names = ASKED.vocabulary
    outputs = np.asarray(model.embeddings.outputs, float)
    noise = strongest_noise(model.scores(), names)
    margins = []
    for s, r, a in zip(*TABLE.fact_ids, strict=True):
        target = int(model.targets(jnp.asarray([a]))[0])
        of_fact = []
        for token in noise:
            prompt = jnp.asarray([s, names.first_relation + r, *[token] * 4, names.eos])
            logits = np.asarray(dense_logits(model, prompt), float)
            of_fact.append(logits[target] - np.delete(logits, target).max())
        margins.append(min(of_fact))
    assert found.facts == 15
    assert found.prompts == len(noise)
    assert len(outputs) > target
    assert found.accuracy == np.mean(np.array(margins) > 0)
    assert found.min_margin == pytest.approx(min(margins), abs=1e-5)


@pytest.mark.parametrize("at_once", [4096, 4])
def test_the_share_of_sampled_prompts_is_what_the_dense_form_finds(monkeypatch, at_once):
    """With a readout of the right answer for some facts, so that some prompts are answered."""
    module = import_module("factmem.transformer.recall")
    monkeypatch.setattr(module, "_PROMPTS_AT_ONCE", at_once)
    model = Transformer.draw(jr.key(3), Shape(12, 2, 6, 5), ASKED.vocabulary)
    model = eqx.tree_at(lambda m: m.weights.key, model, 4 * model.weights.key)
    found = recall(model, ASKED, jr.key(4), sampled=6)
    right = []
    for part, facts in enumerate(np.split(np.arange(15), range(at_once, 15, at_once))):
        for number in range(6):
            key = jr.fold_in(jr.fold_in(jr.key(4), part), number)
            prompts = ASKED.ask(key, jnp.asarray(facts, jnp.int32), form="tokens")
            logits = jax.vmap(lambda prompt: dense_logits(model, prompt))(prompts.content)
            right += (np.argmax(logits, axis=1) == np.asarray(prompts.answers)).tolist()
    assert found.sampled_accuracy == pytest.approx(np.mean(right))
    assert 0 < found.sampled_accuracy < 1
    assert found.accuracy < found.sampled_accuracy
    # More noise is fresh noise.
    assert recall(model, ASKED, jr.key(4), sampled=40).sampled_accuracy != found.sampled_accuracy


def test_where_nothing_is_sampled_there_is_no_share():
    model = Transformer.draw(jr.key(0), Shape(8, 1, 8), ASKED.vocabulary, THEORY)
    assert np.isnan(recall(model, ASKED, jr.key(1), sampled=0).sampled_accuracy)


def test_a_fact_counts_only_if_every_prompt_is_answered():
    """One noise token that takes all attention spoils every fact in some prompt."""
    model = Transformer.draw(jr.key(0), Shape(8, 1, 8), ASKED.vocabulary, THEORY)
    calm = recall(model, ASKED, jr.key(1), sampled=2)
    more = recall(model, ASKED, jr.key(1), sampled=12)
    assert more.accuracy <= calm.accuracy
    assert more.min_margin <= calm.min_margin
    assert more.prompts == calm.prompts + 10


def test_nan_is_no_recall():
    model = Transformer.draw(jr.key(0), Shape(8, 1, 8), ASKED.vocabulary, THEORY)
    broken = eqx.tree_at(lambda m: m.weights.output, model, jnp.nan * model.weights.output)
    found = recall(broken, ASKED, jr.key(1), sampled=1)
    assert found.accuracy == found.sampled_accuracy == 0.0
    assert found.min_margin == -np.inf
