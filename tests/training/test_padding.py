"""Padding changes what is compiled and nothing else."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from factmem._core.errors import FactmemError
from factmem.facts import FactTable, PromptDistribution, Vocabulary
from factmem.training import (
    QUICK,
    PaddedSizes,
    Protocol,
    runs_for_learning_rates,
    train_transformers,
)
from factmem.training.stack import advance, evaluate
from factmem.training.transformers import _stack_runs
from factmem.transformer import THEORY_CONVENTION, Shape, Transformer

TABLE_PADDING = PaddedSizes(Vocabulary(11, 9, 25, 30), 80)
PADDING = replace(TABLE_PADDING, heads=5, width=16)
SHAPE = Shape(12, 3, 4, 10)
ADAM = Protocol((1e-2, 3e-2), steps=40, evaluations=4, batch_size=48, test_prompts=64)
MUON = replace(QUICK, steps=40, evaluations=4, batch_size=48, test_prompts=64)


def make_prompts(subjects, relations, answers, **options):
    table = FactTable.random(subjects, relations, answers, seed=3)
    return PromptDistribution.from_table(table, length=9, **options)


def make_start(prompts):
    return Transformer.draw(SHAPE, prompts.vocabulary, key=jr.key(0))


def train(prompts, protocol, padding=None):
    runs = runs_for_learning_rates(make_start(prompts), prompts, protocol)
    return train_transformers(runs, protocol, key=jr.key(1), padding=padding)


@pytest.mark.parametrize(
    ("protocol", "sizes"), [(ADAM, (7, 5, 3)), (MUON, (11, 7, 4))], ids=["adam", "muon"]
)
def test_padded_training_gives_the_same_results(protocol, sizes):
    """With tokens, answers, facts, heads and neurons of padding."""
    prompts = make_prompts(*sizes)
    results = train(prompts, protocol), train(prompts, protocol, PADDING)
    for plain, padded in zip(*results, strict=True):
        assert padded.model.vocabulary == prompts.vocabulary
        assert padded.model.shape == SHAPE
        for one, other in zip(
            jax.tree.leaves(plain.model), jax.tree.leaves(padded.model), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert padded.status == plain.status
        for before, after in zip(plain.evaluations, padded.evaluations, strict=True):
            assert after.steps == before.steps
            assert after.loss == pytest.approx(before.loss, rel=1e-4)
            assert after.accuracy == pytest.approx(before.accuracy, abs=1.5 / MUON.test_prompts)


def test_weights_of_padding_stay_zero():
    prompts = make_prompts(7, 5, 3)
    padded = PADDING.pad_model(make_start(prompts))
    assert padded.shape == Shape(12, 5, 4, 16)
    stack = _stack_runs(runs_for_learning_rates(make_start(prompts), prompts, MUON), MUON, PADDING)
    active, steps = jnp.ones(1, bool), [jnp.asarray(number, jnp.int32) for number in (0, 5)]
    after = advance(
        stack,
        PADDING.pad_prompts(prompts),
        *steps,
        active,
        MUON.step_config,
        vectorize=False,  # given as in `train_transformers`, whose compiled program this shares
        key=jr.key(3),
    )
    for weights in (padded.weights, jax.tree.map(lambda leaf: leaf[0], after.models.weights)):
        for name in ("query", "key", "value", "output"):
            assert not np.any(getattr(weights, name)[3:]), name
            assert np.all(np.any(getattr(weights, name)[:3], axis=(1, 2))), name
        for name in ("mlp_in", "mlp_bias", "mlp_out"):
            assert not np.any(getattr(weights, name)[10:]), name
    assert np.any(after.models.weights.query != stack.models.weights.query)


@pytest.mark.parametrize("shape", [Shape(12, 6, 4, 10), Shape(12, 3, 4, 17)], ids=str)
def test_rejects_too_many_heads_or_neurons(shape):
    prompts = make_prompts(7, 5, 3)
    with pytest.raises(FactmemError, match=r"does not fit into"):
        PADDING.pad_model(Transformer.draw(shape, prompts.vocabulary, key=jr.key(0)))


def test_padded_tables_share_one_compiled_program():
    train(make_prompts(7, 5, 3), MUON, PADDING)
    before = advance._cache_size(), evaluate._cache_size()
    for sizes in [(5, 4, 2), (11, 7, 4), (3, 9, 3)]:
        train(make_prompts(*sizes), MUON, PADDING)
    assert (advance._cache_size(), evaluate._cache_size()) == before


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("sizes", [(7, 5, 3), (11, 7, 4), (1, 1, 1)])
def test_padded_prompts_are_the_same(sizes, stratified):
    prompts = make_prompts(*sizes)
    plain, padded = (
        each.sample_batch(100, form="counts", stratified=stratified, key=jr.key(5))
        for each in (prompts, PADDING.pad_prompts(prompts))
    )
    own, large = prompts.vocabulary, PADDING.vocabulary
    counts = np.asarray(padded.content)
    kinds = [
        (0, own.subjects, 0, large.subjects),
        (own.first_relation, own.relations, large.first_relation, large.relations),
        (own.first_noise, own.noise, large.first_noise, large.noise),
        (own.eos, 1, large.eos, 1),
    ]
    for own_first, count, first, padded_count in kinds:
        np.testing.assert_array_equal(
            plain.content[:, own_first : own_first + count], counts[:, first : first + count]
        )
        assert not counts[:, first + count : first + padded_count].any()
    np.testing.assert_array_equal(plain.fact_ids, padded.fact_ids)
    np.testing.assert_array_equal(plain.answers, padded.answers)


def test_padded_model_has_the_same_outputs():
    prompts = make_prompts(7, 5, 3)
    model = make_start(prompts)
    padded_model = TABLE_PADDING.pad_model(model)
    outputs, logits = (eqx.filter_jit(f) for f in (Transformer.__call__, Transformer.logits))
    counts, padded_counts = (
        each.sample_batch(64, form="counts", key=jr.key(2)).content
        for each in (prompts, TABLE_PADDING.pad_prompts(prompts))
    )
    np.testing.assert_allclose(
        outputs(model, counts), outputs(padded_model, padded_counts), rtol=1e-5, atol=1e-6
    )
    mask = np.asarray(TABLE_PADDING.answer_mask(prompts))
    np.testing.assert_allclose(
        logits(model, counts),
        logits(padded_model, padded_counts)[:, mask],
        rtol=1e-4,
        atol=1e-5,
    )
    assert mask.sum() == prompts.vocabulary.answers


def test_padding_does_not_change_the_largest_score():
    """Scores are shifted by the largest score of the head, which must be of a real token."""
    model = make_start(make_prompts(7, 5, 3))
    scores, padded_scores = model.scores(), PADDING.pad_model(model).scores()[:, :3]
    np.testing.assert_allclose(jnp.max(scores, axis=0), jnp.max(padded_scores, axis=0), rtol=1e-6)


@pytest.mark.parametrize("sizes", [(12, 3, 2), (3, 10, 2), (8, 9, 4), (10, 9, 3)])
def test_rejects_tables_that_are_too_large(sizes):
    with pytest.raises(FactmemError, match=r"do not fit"):
        PADDING.pad_prompts(make_prompts(*sizes))


def test_rejects_unequal_probabilities():
    with pytest.raises(FactmemError, match=r"equally likely"):
        PADDING.pad_prompts(make_prompts(7, 5, 3, subject_power=1.0))


def test_rejects_shared_embedding_tables():
    vocabulary = make_prompts(7, 5, 3).vocabulary
    model = Transformer.draw(SHAPE, vocabulary, THEORY_CONVENTION, key=jr.key(0))
    with pytest.raises(FactmemError, match=r"shared embedding table cannot be padded"):
        PADDING.pad_model(model)
