"""Theorem 3, compared with its equations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    THEORY_CONVENTION,
    ConstructionStatus,
    Embeddings,
    ambiguous_facts,
    attention_construction,
    recall,
)
from factmem.transformer.constructions.attention_only import default_block_size, memory_variance


def construct(table, dim, head_dim, seed=0, **options):
    prompts = PromptDistribution.from_table(table, noise=options.pop("noise", None))
    embedding_key, key = jr.split(jr.key(seed))
    phi = Embeddings.draw(dim, prompts.vocabulary, THEORY_CONVENTION, key=embedding_key)
    return attention_construction(prompts, phi, head_dim, **options, key=key), prompts


def test_weights_match_the_equations():
    table = FactTable.random(5, 3, 2, seed=1)
    construction, prompts = construct(table, 12, 4, block_size=2, beta=7.0)
    model, vocabulary = construction.model, prompts.vocabulary
    phi = np.asarray(model.embeddings.tokens, float)
    eos = phi[vocabulary.eos]
    W_KQ, W_OV = np.asarray(model.W_KQ), np.asarray(model.W_OV)
    values = np.asarray(model.weights.value, float)
    assert model.shape.heads == 3 + 2
    np.testing.assert_allclose(np.linalg.norm(values, axis=2), 1.0, rtol=1e-5)
    np.testing.assert_allclose(values @ eos, 0.0, atol=1e-6)
    for head in range(model.shape.heads):
        members = np.flatnonzero(construction.blocks[head])
        key = sum(phi[z] for z in members) + 0.5 * eos
        np.testing.assert_allclose(W_KQ[head], 7.0 * np.outer(key, eos), atol=1e-5)
        memory = np.zeros((12, 12))
        for z in members:
            facts = table.answer_of[z] if z < 5 else table.answer_of[:, z - 5]
            for a in set(facts.tolist()):
                memory += np.outer(phi[vocabulary.first_answer + a], phi[z])
        directions = sum(np.outer(v, v) for v in values[head])
        np.testing.assert_allclose(W_OV[head], 12 / 4 * memory @ directions, atol=1e-5)


def test_mean_logits_count_the_sets_that_contain_an_answer():
    """The mean over draws is 1{a ∈ A_s} + 1{a ∈ A_r}, and 0 for tokens."""
    table = FactTable.random(4, 4, 2, seed=3)
    dim, draws = 384, 12

    def logits(seed):
        construction, prompts = construct(table, dim, dim, seed, block_size=1)
        batch = prompts.sample(jnp.arange(table.facts), form="counts", key=jr.key(seed))
        return np.asarray(eqx.filter_jit(construction.model.logits)(batch.content))

    mean = np.mean([logits(seed) for seed in range(draws)], axis=0)
    _, prompts = construct(table, 8, 8)
    expected = np.zeros_like(mean)
    for fact, (s, r, _) in enumerate(zip(*table.fact_ids, strict=True)):
        for a in range(table.answers):
            score = (a in table.answer_of[s]) + (a in table.answer_of[:, r])
            expected[fact, prompts.vocabulary.first_answer + a] = score
    np.testing.assert_allclose(mean, expected, atol=0.25)
    np.testing.assert_allclose(mean[expected == 2].mean(), 2.0, atol=0.05)


def test_memory_variance_matches_samples():
    """Samples are the scores of subjects' correct answers."""
    table = FactTable.random(8, 4, 4, seed=0)
    dim, head_dim, block = 64, 32, 4

    @jax.jit
    def scores(tokens, W_OV):
        return jnp.einsum("ad,hde,ze->hza", tokens[-16:], W_OV, tokens[:8])

    samples = []
    for seed in range(60):
        construction, _ = construct(table, dim, head_dim, seed, block_size=block)
        model = construction.model
        head_scores = np.asarray(scores(model.embeddings.tokens, model.W_OV))
        s, _, a = table.fact_ids
        samples.append(head_scores[s // block, s, a])
    assert np.mean(samples) == pytest.approx(1.0, abs=0.05)
    assert np.var(samples) == pytest.approx(memory_variance(table, dim, head_dim, block), rel=0.15)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_recalls_every_fact(seed):
    construction, prompts = construct(
        FactTable.random(16, 4, 4, seed=seed), 512, 256, seed, block_size=4
    )
    assert construction.denoiser_margin > 0
    assert construction.status is ConstructionStatus.SEPARATED
    assert construction.notes == ()
    assert recall(construction.model, prompts, key=jr.key(seed)).accuracy == 1.0


def test_default_block_size_recalls_every_fact():
    table = FactTable.random(16, 4, 4)
    construction, prompts = construct(table, 512, 256)
    block_size = default_block_size(table, prompts.vocabulary, 512, 256)
    assert block_size > 1
    assert construction.blocks.sum(axis=1).max() == block_size
    assert recall(construction.model, prompts, key=jr.key(9)).accuracy == 1.0
    assert default_block_size(table, prompts.vocabulary, 16, 4) == 1


def test_not_separated_if_a_block_is_too_large():
    """One head of 32 dimensions reads all subjects: some token is on the wrong side of EOS."""
    construction, _ = construct(FactTable.random(16, 4, 4), 32, 32, block_size=16)
    assert construction.denoiser_margin < 0
    assert construction.status is ConstructionStatus.NOT_SEPARATED


def test_partial_table():
    rng = np.random.default_rng(0)
    grid = np.array(FactTable.random(12, 4, 4).answer_of)
    grid[rng.random(grid.shape) < 0.4] = MISSING
    table = FactTable(grid)
    construction, prompts = construct(table, 512, 256, block_size=4)
    (note,) = construction.notes
    assert note.startswith(f"{48 - table.facts} of 48 (subject, relation) pairs have no fact")
    assert recall(construction.model, prompts, key=jr.key(1)).accuracy == 1.0


def test_counts_ambiguous_facts_and_recalls_the_others():
    grid = np.random.default_rng(5).integers(12, size=(8, 4))
    table = FactTable(grid)
    ambiguous = [len(set(grid[s]) & set(grid[:, r])) > 1 for s in range(8) for r in range(4)]
    assert 0 < sum(ambiguous) < 32
    assert ambiguous_facts(table) == sum(ambiguous)
    construction, prompts = construct(table, 768, 768, block_size=2)
    assert construction.notes[0].startswith(f"{sum(ambiguous)} of 32 facts have another answer")
    facts = jnp.asarray(np.flatnonzero(~np.array(ambiguous)))
    batch = prompts.sample(facts, form="counts", key=jr.key(2))
    logits = eqx.filter_jit(construction.model.logits)(batch.content)
    predicted = jnp.argmax(logits, axis=1)
    assert (predicted == construction.model.targets(batch.answers)).all()


def test_rejects_impossible_sizes_and_two_tables():
    table = FactTable.random(4, 2, 2)
    with pytest.raises(FactmemError, match="head_dim must be from 1 to dim = 8, got 9"):
        construct(table, 8, 9)
    with pytest.raises(FactmemError, match="dim must be at least 2, got 1"):
        construct(table, 1, 1)
    prompts = PromptDistribution.from_table(table)
    two_tables = Embeddings.draw(8, prompts.vocabulary, EXPERIMENT_CONVENTION, key=jr.key(0))
    with pytest.raises(FactmemError, match="one embedding table"):
        attention_construction(prompts, two_tables, 4, key=jr.key(1))


@pytest.mark.slow  # twenty constructions of the documented size
def test_recalls_every_fact_for_17_of_20_seeds():
    def holds(seed):
        construction, prompts = construct(
            FactTable.random(16, 4, 4, seed=seed), 512, 256, seed, block_size=4
        )
        result = recall(construction.model, prompts, key=jr.key(seed))
        return result.accuracy == 1.0 and construction.denoiser_margin > 0

    assert sum(map(holds, range(20))) >= 17
