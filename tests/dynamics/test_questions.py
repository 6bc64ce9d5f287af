"""Expectations over the population are those over every prompt, written down one by one."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import rel_entr
from tests.dynamics import small

from factmem.dynamics import LinearAttention, Population, PromptSample
from factmem.facts import FactTable, PromptDistribution

POWERS = [0.0, 1.3]


def population(power=0.0):
    return Population.of(small.TABLE, noise=small.N, length=small.T, subject_power=power)


def weights(seed=0):
    return LinearAttention.random(small.S + small.R + 2, small.ANSWERS, 1.0, seed)


@pytest.mark.parametrize("power", POWERS)
def test_errors_are_those_of_every_prompt(power):
    model = weights()
    ov, kq = small.spread(model.ov), small.spread(model.kq)
    of_ov, of_kq = small.velocity(ov, kq, power)
    with jax.enable_x64(True):
        errors = np.asarray(population(power).errors(model.products))
    errors = small.spread(errors)
    assert np.allclose(kq[:, None] * errors, of_ov, atol=1e-12)
    assert np.allclose((ov * errors).sum(axis=1), of_kq, atol=1e-12)


@pytest.mark.parametrize("power", POWERS)
def test_losses_are_those_of_every_prompt(power):
    model, questions = weights(1), population(power)
    ov, kq = small.spread(model.ov), small.spread(model.kq)
    with jax.enable_x64(True):
        seen = questions.see(questions.log_probabilities(model.products))
        seen = jax.tree.map(np.asarray, seen)
    total, relation, subject, farthest = 0.0, 0.0, 0.0, 0.0
    of_relations, of_subjects = 0.0, 0.0
    by_subject, share = np.zeros(small.S), np.zeros(small.S)
    joint, by_name = np.zeros((small.R, small.ANSWERS)), np.zeros((small.S, small.ANSWERS))
    for chance, _, s, r in small.prompts(power):
        joint[r, small.TABLE.answer_of[s, r]] += chance
        by_name[s, small.TABLE.answer_of[s, r]] += chance
    given = joint / joint.sum(axis=1, keepdims=True)
    given_name = by_name / by_name.sum(axis=1, keepdims=True)
    for chance, tokens, s, r in small.prompts(power):
        p = small.predicted(ov, kq, tokens)
        own = -np.log(p[small.TABLE.answer_of[s, r]])
        total += chance * own
        relation -= chance * np.log(p[np.unique(small.TABLE.answer_of[:, r])].sum())
        subject -= chance * np.log(p[small.TABLE.answer_of[s]].sum())
        farthest = max(farthest, ((p - given[r]) ** 2).sum())
        of_relations += chance * rel_entr(given[r], p).sum()
        of_subjects += chance * rel_entr(given_name[s], p).sum()
        by_subject[s] += chance * own
        share[s] += chance
    assert seen.loss == pytest.approx(total, abs=1e-12)
    assert seen.loss == pytest.approx(small.loss(ov, kq, power), abs=1e-12)
    assert seen.relation_loss == pytest.approx(relation, abs=1e-12)
    assert seen.subject_loss == pytest.approx(subject, abs=1e-12)
    assert seen.distance == pytest.approx(farthest, abs=1e-12)
    assert seen.relation_gap == pytest.approx(of_relations, abs=1e-12)
    assert seen.subject_gap == pytest.approx(of_subjects, abs=1e-12)
    assert seen.relation_gap >= seen.relation_loss
    assert seen.subject_gap >= seen.subject_loss
    assert np.allclose(seen.loss_of_subjects, by_subject / share, atol=1e-12)


def test_errors_are_the_gradient_of_the_loss_in_the_products():
    questions, model = population(1.0), weights(2)

    def loss(products):
        return questions.see(questions.log_probabilities(products)).loss

    with jax.enable_x64(True):
        gradient = np.asarray(jax.grad(loss)(model.products))
        errors = np.asarray(questions.errors(model.products))
    # What moves a whole class is the sum over its tokens.
    size = np.array([1] * (small.S + small.R) + [small.N, 1])
    assert np.allclose(gradient, -size[:, None] * errors, atol=1e-12)


def test_many_sampled_prompts_come_close_to_the_population():
    questions = population(1.0)
    asked = PromptDistribution.of(small.TABLE, noise=small.N, length=small.T)
    sample = PromptSample.draw(jr.key(0), questions, asked, 4000)
    assert sample.chances.sum() == pytest.approx(1, abs=1e-12)
    assert sample.tokens == small.TOKENS
    # Noise tokens that differ, so that the sample's own counts matter.
    rng = np.random.default_rng(0)
    ov, kq = rng.normal(size=(small.TOKENS, small.ANSWERS)), rng.normal(size=small.TOKENS)
    spread = LinearAttention(ov, kq)
    of_ov, _ = small.velocity(ov, kq, 1.0)
    with jax.enable_x64(True):
        errors = np.asarray(sample.errors(spread.products))
        seen = sample.see(sample.log_probabilities(spread.products))
    assert np.allclose(kq[:, None] * errors, of_ov, atol=0.02)
    assert float(seen.loss) == pytest.approx(small.loss(ov, kq, 1.0), abs=0.02)


def test_levels_are_entropies():
    questions = Population.of(FactTable.structured(16, 4, 8))
    assert questions.relation_level == pytest.approx(math.log(8), abs=1e-12)
    assert questions.subject_level == pytest.approx(math.log(4), abs=1e-12)
    assert questions.marginal_level == pytest.approx(math.log(32), abs=1e-12)
    skewed = population()
    # Relation 0 answers 0, 1, 1 and relation 1 answers 2, 2, 3.
    third = math.log(3) - 2 / 3 * math.log(2)
    assert skewed.relation_level == pytest.approx(third, abs=1e-12)
    assert skewed.marginal_level == pytest.approx(third + math.log(2), abs=1e-12)


def test_open_questions_have_no_part():
    grid = np.array([[0, 2], [1, -1], [1, 3]])
    questions = Population.of(FactTable(grid), noise=2, length=5)
    assert questions.chances.sum() == pytest.approx(1, abs=1e-12)
    assert questions.chances[3] == 0
    assert np.allclose(questions.given_subject[1], [0, 1, 0, 0])
    assert questions.relation_level == pytest.approx(
        (3 * (math.log(3) - 2 / 3 * math.log(2)) + 2 * math.log(2)) / 5, abs=1e-12
    )
    with jax.enable_x64(True):
        products = jnp.zeros((questions.tokens, 4)).at[1, 0].set(50.0)
        seen = questions.see(questions.log_probabilities(products))
        errors = questions.errors(products)
    # Only the question that is asked about subject 1 feels what is wrong with it.
    assert np.allclose(errors[1], [-0.2, 0.2, 0, 0], atol=1e-12)
    assert float(seen.distance) == pytest.approx((1 - 1 / 3) ** 2 + (2 / 3) ** 2, abs=1e-9)
    assert np.isfinite(np.asarray(seen.loss_of_subjects)).all()


def test_tokens_are_told_apart_by_their_kind():
    questions = population(1.0)
    one_class = questions.by_kind(np.arange(7))
    assert [part.tolist() for part in one_class] == [[0, 1, 2], [3, 4], [5], [6]]
    each = questions.by_kind(np.arange(16).reshape(2, 8))
    assert each.noise.tolist() == [[5, 6], [13, 14]]
    assert each.eos.tolist() == [[7], [15]]
    assert np.allclose(questions.subject_chances * np.arange(1, 4), questions.subject_chances[0])
    assert np.allclose(questions.relation_chances, 0.5)
