"""PaddedSizes for more changes what is compiled, and nothing else."""

from dataclasses import replace

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
from factmem.training.stack import advance, measure
from factmem.training.transformers import _stack
from factmem.transformer import THEORY, Shape, Transformer

ROOM = PaddedSizes(Vocabulary(11, 9, 25, 30), 80)
SHAPE = Shape(12, 3, 4, 10)
ADAM = Protocol((1e-2, 3e-2), steps=40, checks=4, batch=48, prompts=64)
MUON = replace(QUICK, steps=40, checks=4, batch=48, prompts=64)


def asked_of(subjects, relations, answers, **options):
    table = FactTable.random(subjects, relations, answers, seed=3)
    return PromptDistribution.of(table, length=9, **options)


def start_of(asked):
    return Transformer.draw(jr.key(0), SHAPE, asked.vocabulary)


def trained(asked, protocol, room=None):
    runs = runs_for_learning_rates(start_of(asked), asked, protocol)
    return train_transformers(runs, protocol, jr.key(1), room=room)


@pytest.mark.parametrize(("protocol", "sizes"), [(ADAM, (7, 5, 3)), (MUON, (11, 7, 4))])
def test_training_is_the_same(protocol, sizes):
    asked = asked_of(*sizes)
    for plain, roomy in zip(trained(asked, protocol), trained(asked, protocol, ROOM), strict=True):
        assert roomy.model.vocabulary == asked.vocabulary
        for one, other in zip(
            jax.tree.leaves(plain.model), jax.tree.leaves(roomy.model), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert roomy.outcome == plain.outcome
        for before, after in zip(plain.checks, roomy.checks, strict=True):
            assert after.steps == before.steps
            assert after.loss == pytest.approx(before.loss, rel=1e-4)
            assert after.accuracy == pytest.approx(before.accuracy, abs=1.5 / MUON.prompts)


LARGE = replace(ROOM, heads=5, width=16)


@pytest.mark.parametrize("protocol", [ADAM, MUON])
def test_heads_and_neurons_that_do_nothing_change_nothing(protocol):
    asked = asked_of(7, 5, 3)
    plain, roomy = trained(asked, protocol, ROOM), trained(asked, protocol, LARGE)
    for one, other in zip(plain, roomy, strict=True):
        assert other.model.shape == SHAPE
        for left, right in zip(
            jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True
        ):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
        assert other.outcome == one.outcome
        assert [check.loss for check in other.checks] == pytest.approx(
            [check.loss for check in one.checks], rel=1e-4
        )


def test_they_are_zero_and_stay_zero():
    asked = asked_of(7, 5, 3)
    larger = LARGE.model(start_of(asked))
    assert larger.shape == Shape(12, 5, 4, 16)
    stack = _stack(runs_for_learning_rates(start_of(asked), asked, MUON), MUON, LARGE)
    alive, steps = jnp.ones(1, bool), (jnp.asarray(0), jnp.asarray(5))
    after = advance(stack, LARGE.questions(asked), jr.key(3), *steps, alive, MUON.recipe)
    for weights in (larger.weights, jax.tree.map(lambda leaf: leaf[0], after.models.weights)):
        for name in ("query", "key", "value", "output"):
            assert not np.any(getattr(weights, name)[3:]), name
            assert np.all(np.any(getattr(weights, name)[:3], axis=(1, 2))), name
        for name in ("mlp_in", "mlp_bias", "mlp_out"):
            assert not np.any(getattr(weights, name)[10:]), name
    assert np.any(after.models.weights.query != stack.models.weights.query)


@pytest.mark.parametrize("shape", [Shape(12, 6, 4, 10), Shape(12, 3, 4, 17)])
def test_more_heads_or_neurons_than_there_is_room_for_are_refused(shape):
    asked = asked_of(7, 5, 3)
    with pytest.raises(FactmemError, match=r"does not fit into"):
        LARGE.model(Transformer.draw(jr.key(0), shape, asked.vocabulary))


def test_tables_of_many_sizes_share_what_is_compiled():
    trained(asked_of(7, 5, 3), MUON, ROOM)
    before = advance._cache_size(), measure._cache_size()
    for sizes in [(5, 4, 2), (11, 7, 4), (3, 9, 3)]:
        trained(asked_of(*sizes), MUON, ROOM)
    assert (advance._cache_size(), measure._cache_size()) == before


@pytest.mark.parametrize("evenly", [False, True])
@pytest.mark.parametrize("sizes", [(7, 5, 3), (11, 7, 4), (1, 1, 1)])
def test_prompts_are_the_same_among_tokens_that_never_come(sizes, evenly):
    asked = asked_of(*sizes)
    roomy = ROOM.questions(asked)
    plain, more = (
        each.sample(jr.key(5), 100, form="counts", evenly=evenly) for each in (asked, roomy)
    )
    names, most = asked.vocabulary, ROOM.vocabulary
    counts = np.asarray(more.content)
    kinds = [
        (0, names.subjects, 0, most.subjects),
        (names.first_relation, names.relations, most.first_relation, most.relations),
        (names.first_noise, names.noise, most.first_noise, most.noise),
        (names.eos, 1, most.eos, 1),
    ]
    for own, count, place, room in kinds:
        np.testing.assert_array_equal(
            plain.content[:, own : own + count], counts[:, place : place + count]
        )
        assert not counts[:, place + count : place + room].any()
    np.testing.assert_array_equal(plain.facts, more.facts)
    np.testing.assert_array_equal(plain.answers, more.answers)


def test_what_it_answers_is_the_same():
    asked = asked_of(7, 5, 3)
    model = start_of(asked)
    prompts = asked.sample(jr.key(2), 64, form="counts")
    more = ROOM.questions(asked).sample(jr.key(2), 64, form="counts")
    np.testing.assert_allclose(
        model(prompts.content), ROOM.model(model)(more.content), rtol=1e-5, atol=1e-6
    )
    logits = ROOM.model(model).logits(more.content)
    np.testing.assert_allclose(
        model.logits(prompts.content),
        logits[:, np.asarray(ROOM.answers(asked))],
        rtol=1e-4,
        atol=1e-5,
    )
    assert int(ROOM.answers(asked).sum()) == asked.vocabulary.answers


def test_tokens_that_never_come_have_no_score_of_their_own():
    """A head's highest score, by which all are shifted, is that of a token that comes."""
    asked = asked_of(7, 5, 3)
    model = start_of(asked)
    scores, more = model.scores(), ROOM.model(model).scores()
    np.testing.assert_allclose(jnp.max(scores, axis=0), jnp.max(more, axis=0), rtol=1e-6)


@pytest.mark.parametrize("sizes", [(12, 3, 2), (3, 10, 2), (8, 9, 4), (10, 9, 3)])
def test_what_does_not_fit_is_refused(sizes):
    with pytest.raises(FactmemError, match=r"do not fit"):
        ROOM.questions(asked_of(*sizes))


def test_unequal_questions_and_shared_tables_have_no_room():
    with pytest.raises(FactmemError, match=r"equally likely"):
        ROOM.questions(asked_of(7, 5, 3, subject_power=1.0))
    asked = asked_of(7, 5, 3)
    shared = Transformer.draw(jr.key(0), SHAPE, asked.vocabulary, THEORY)
    with pytest.raises(FactmemError, match=r"has no room"):
        ROOM.model(shared)
