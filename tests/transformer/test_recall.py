"""Recall checks every fact, and counts it only if every prompt is answered correctly."""

import subprocess
import sys
from importlib import import_module

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factmem.facts import FactTable, PromptDistribution
from factmem.memories.decoding import smallest_margins
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


# ---- blocks --------------------------------------------------------------------------------------


def recall_by_counts(model, prompts, contents):
    """Compute the smallest margins of every fact from token counts and all differences."""
    targets = model.targets(prompts.fact_answers)
    values = model.embeddings.outputs
    results = [
        smallest_margins(jitted_outputs(model, counts), values, targets) for counts in contents
    ]
    margins, relative = np.min(np.nan_to_num(results, nan=-np.inf), axis=0)
    return np.mean(margins > 0), margins.min(), relative.min()


def adversarial_counts(model, prompts):
    facts = jnp.arange(prompts.facts)
    for token in strongest_noise(model.scores(), model.vocabulary):
        yield prompts.fill_noise(facts, jnp.asarray(token, jnp.int32)).content


def sampled_counts(prompts, key, prompts_per_fact):
    batch_key = jr.fold_in(key, 0)
    for number in range(prompts_per_fact):
        facts = jnp.arange(prompts.facts, dtype=jnp.int32)
        yield prompts.sample_counts(facts, key=jr.fold_in(batch_key, number))


jitted_outputs = eqx.filter_jit(Transformer.__call__)


def hard_values(kind, answers, rng):
    """Return output vectors whose distances are hard to compute."""
    values = rng.normal(size=answers.shape)
    if kind == "duplicates":
        values[1] = values[0]
    elif kind == "close":
        values[1] = values[0] + 1e-4 * values[2]
    elif kind == "far from zero":
        values += 300.0
    elif kind == "tiny":
        values *= 1e-30
    return jnp.asarray(values, jnp.float32)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    convention=st.sampled_from([THEORY_CONVENTION, EXPERIMENT_CONVENTION]),
    kind=st.sampled_from(["gaussian", "duplicates", "close", "far from zero", "tiny"]),
    entries=st.sampled_from([1, 2**23]),
)
def test_blocks_match_counts_over_the_vocabulary(seed, convention, kind, entries):
    module = import_module("factmem.transformer.recall")
    key = jr.key(seed)
    model = Transformer.draw(Shape(6, 2, 3, 5), PROMPTS.vocabulary, convention, key=key)
    if convention is EXPERIMENT_CONVENTION:
        values = hard_values(kind, model.embeddings.answers, np.random.default_rng(seed))
        model = eqx.tree_at(lambda m: m.embeddings.answers, model, values)
    contents = [*sampled_counts(PROMPTS, key, 2), *adversarial_counts(model, PROMPTS)]
    accuracy, min_margin, min_relative_margin = recall_by_counts(model, PROMPTS, contents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_ENTRIES", entries)
        patch.setattr(module, "_MAX_PAIR_ENTRIES", 7)
        result = recall(model, PROMPTS, key=key, prompts_per_fact=2)
    scale = 1e-5 * float(jnp.abs(model.embeddings.outputs).max())
    assert result.prompts_checked == len(contents)
    if abs(min_margin) > scale:
        assert result.accuracy == pytest.approx(accuracy, abs=1 / 15)
    assert result.min_margin == pytest.approx(min_margin, rel=1e-3, abs=scale)
    # Scores of vectors far from zero lose the digits that their differences keep.
    atol = 2e-3 if kind in ("far from zero", "close") else 1e-4
    assert result.min_relative_margin == pytest.approx(min_relative_margin, rel=1e-3, abs=atol)


def test_equal_answers_are_a_tie():
    model = Transformer.draw(Shape(6, 2, 3, 5), PROMPTS.vocabulary, key=jr.key(3))
    equal = jnp.broadcast_to(model.embeddings.answers[:1], model.embeddings.answers.shape)
    model = eqx.tree_at(lambda m: m.embeddings.answers, model, equal)
    result = recall(model, PROMPTS, key=jr.key(4), prompts_per_fact=1)
    assert result.accuracy == result.min_margin == result.min_relative_margin == 0.0


@pytest.mark.parametrize("mixtures", [1, 3])
def test_mixtures_have_the_two_tokens_with_the_smallest_margins(mixtures):
    model = Transformer.draw(Shape(6, 3, 2, 5), PROMPTS.vocabulary, key=jr.key(30))
    model = eqx.tree_at(lambda m: m.weights.key, model, 3 * model.weights.key)
    vocabulary, positions = PROMPTS.vocabulary, PROMPTS.length - 3
    noise = strongest_noise(model.scores(), vocabulary)
    assert len(noise) > 1

    def margin(fact, tokens):
        s, r, a = (int(ids[fact]) for ids in TABLE.fact_ids)
        prompt = jnp.asarray([s, vocabulary.first_relation + r, *tokens, vocabulary.eos])
        logits = np.asarray(jitted_logits(model, prompt), float)
        return logits[a] - np.delete(logits, a).max()

    margins = []
    for fact in range(TABLE.facts):
        filled = [(margin(fact, [token] * positions), token) for token in noise]
        (smallest, first), (_, second) = sorted(filled)[:2]
        margins.append(smallest)
        for number in range(1, mixtures + 1):
            count = round(positions * number / (mixtures + 1))
            margins.append(margin(fact, [first] * (positions - count) + [second] * count))
    result = recall(model, PROMPTS, key=jr.key(6), prompts_per_fact=0, mixtures=mixtures)
    assert result.prompts_checked == len(noise) + mixtures
    assert result.min_margin == pytest.approx(min(margins), abs=1e-5)
    assert result.min_margin < recall(model, PROMPTS, key=jr.key(6), prompts_per_fact=0).min_margin


def test_reports_count_prompts(monkeypatch):
    module = import_module("factmem.transformer.recall")
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", 1)
    model = Transformer.draw(Shape(6, 2, 3, 5), PROMPTS.vocabulary, key=jr.key(3))
    reports = []
    result = recall(
        model,
        PROMPTS,
        key=jr.key(4),
        prompts_per_fact=3,
        report=lambda done, left: reports.append((done, left)),
    )
    total = result.facts * result.prompts_checked
    assert reports == [(done, total - done) for done in range(1, total + 1)]


@pytest.mark.slow  # a process of its own, with 20,000 answers and 40,000 tokens
def test_memory_does_not_grow_with_facts_times_answers():
    def peak_bytes(subjects):
        script = f"""
import resource
import jax.random as jr
import numpy as np
from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import Shape, Transformer, recall
answers = np.arange({subjects} * 2).reshape(-1, 2) % 20_000
names = tuple(f"answer {{a}}" for a in range(20_000))
prompts = PromptDistribution.from_table(FactTable(answers, answer_names=names), noise=40_000)
model = Transformer.draw(Shape(8, 2, 4), prompts.vocabulary, key=jr.key(0))
recall(model, prompts, key=jr.key(1), prompts_per_fact=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        return 1024 * int(run.stdout)

    # Both have many blocks: with few of them, memory that the first one frees is not needed again.
    few, many = peak_bytes(4000), peak_bytes(16_000)
    assert many - few < 24_000 * 20_000 * 4 / 16, "a part of the scores of 24,000 more facts"
