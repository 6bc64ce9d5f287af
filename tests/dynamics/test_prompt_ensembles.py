"""Expectations over ensembles, against sums over all prompts."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import rel_entr
from tests.dynamics import small_problem

from factmem.dynamics import LinearAttention, PromptPopulation, PromptSample
from factmem.facts import FactTable, PromptDistribution

POWERS = [0.0, 1.3]


errors_of = jax.jit(PromptPopulation.errors)
sample_errors_of = jax.jit(PromptSample.errors)


@jax.jit
def statistics_of(ensemble, products):
    return ensemble.statistics(ensemble.log_probabilities(products))


def make_weights(seed=0):
    return LinearAttention.random(
        small_problem.S + small_problem.R + 2, small_problem.ANSWERS, 1.0, seed
    )


@pytest.mark.parametrize("power", POWERS)
def test_errors_match_sums_over_all_prompts(power):
    model = make_weights()
    ov, kq = small_problem.expand_noise(model.ov), small_problem.expand_noise(model.kq)
    ov_slope, kq_slope = small_problem.velocity(ov, kq, power)
    with jax.enable_x64(True):
        errors = np.asarray(errors_of(small_problem.make_population(power), model.products))
    errors = small_problem.expand_noise(errors)
    assert np.allclose(kq[:, None] * errors, ov_slope, atol=1e-12)
    assert np.allclose((ov * errors).sum(axis=1), kq_slope, atol=1e-12)


@pytest.mark.parametrize("power", POWERS)
def test_statistics_match_sums_over_all_prompts(power):
    model, population = make_weights(1), small_problem.make_population(power)
    ov, kq = small_problem.expand_noise(model.ov), small_problem.expand_noise(model.kq)
    with jax.enable_x64(True):
        statistics = jax.tree.map(np.asarray, statistics_of(population, model.products))
    answer_of = small_problem.TABLE.answer_of
    loss, relation_loss, subject_loss, distance = 0.0, 0.0, 0.0, 0.0
    relation_kl, subject_kl = 0.0, 0.0
    by_subject, of_subject = np.zeros(small_problem.S), np.zeros(small_problem.S)
    given_relation = np.zeros((small_problem.R, small_problem.ANSWERS))
    given_subject = np.zeros((small_problem.S, small_problem.ANSWERS))
    for probability, _, s, r in small_problem.all_prompts(power):
        given_relation[r, answer_of[s, r]] += probability
        given_subject[s, answer_of[s, r]] += probability
    given_relation /= given_relation.sum(axis=1, keepdims=True)
    given_subject /= given_subject.sum(axis=1, keepdims=True)
    for probability, tokens, s, r in small_problem.all_prompts(power):
        p = small_problem.predict(ov, kq, tokens)
        own_loss = -np.log(p[answer_of[s, r]])
        loss += probability * own_loss
        relation_loss -= probability * np.log(p[np.unique(answer_of[:, r])].sum())
        subject_loss -= probability * np.log(p[answer_of[s]].sum())
        distance = max(distance, ((p - given_relation[r]) ** 2).sum())
        relation_kl += probability * rel_entr(given_relation[r], p).sum()
        subject_kl += probability * rel_entr(given_subject[s], p).sum()
        by_subject[s] += probability * own_loss
        of_subject[s] += probability
    assert statistics.loss == pytest.approx(loss, abs=1e-12)
    assert statistics.loss == pytest.approx(small_problem.loss(ov, kq, power), abs=1e-12)
    assert statistics.relation_loss == pytest.approx(relation_loss, abs=1e-12)
    assert statistics.subject_loss == pytest.approx(subject_loss, abs=1e-12)
    assert statistics.relation_distance == pytest.approx(distance, abs=1e-12)
    assert statistics.relation_kl == pytest.approx(relation_kl, abs=1e-12)
    assert statistics.subject_kl == pytest.approx(subject_kl, abs=1e-12)
    assert statistics.relation_kl >= statistics.relation_loss
    assert statistics.subject_kl >= statistics.subject_loss
    assert np.allclose(statistics.loss_by_subject, by_subject / of_subject, atol=1e-12)


def test_errors_are_minus_the_gradient_of_the_loss():
    population, model = small_problem.make_population(1.0), make_weights(2)

    def loss(products):
        return statistics_of(population, products).loss

    with jax.enable_x64(True):
        gradient = np.asarray(jax.grad(loss)(model.products))
        errors = np.asarray(errors_of(population, model.products))
    # The gradient of a class is the sum over its tokens.
    sizes = np.array([1] * (small_problem.S + small_problem.R) + [small_problem.N, 1])
    assert np.allclose(gradient, -sizes[:, None] * errors, atol=1e-12)


def test_large_samples_approach_the_population():
    population = small_problem.make_population(1.0)
    prompts = PromptDistribution.from_table(
        small_problem.TABLE, noise=small_problem.N, length=small_problem.T
    )
    sample = PromptSample.draw(population, prompts, prompts_per_fact=4000, key=jr.key(0))
    assert sample.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert sample.tokens == small_problem.TOKENS
    # Noise tokens with different weights, so that the counts matter.
    rng = np.random.default_rng(0)
    ov = rng.normal(size=(small_problem.TOKENS, small_problem.ANSWERS))
    kq = rng.normal(size=small_problem.TOKENS)
    model = LinearAttention(ov, kq)
    ov_slope, _ = small_problem.velocity(ov, kq, 1.0)
    with jax.enable_x64(True):
        errors = np.asarray(sample_errors_of(sample, model.products))
        loss = float(statistics_of(sample, model.products).loss)
    assert np.allclose(kq[:, None] * errors, ov_slope, atol=0.02)
    assert loss == pytest.approx(small_problem.loss(ov, kq, 1.0), abs=0.02)


def test_entropies():
    population = PromptPopulation.from_table(FactTable.structured(16, 4, 8))
    assert population.relation_entropy == pytest.approx(math.log(8), abs=1e-12)
    assert population.subject_entropy == pytest.approx(math.log(4), abs=1e-12)
    assert population.answer_entropy == pytest.approx(math.log(32), abs=1e-12)
    unbalanced = small_problem.make_population()
    # Relation 0 answers 0, 1, 1 and relation 1 answers 2, 2, 3.
    entropy = math.log(3) - 2 / 3 * math.log(2)
    assert unbalanced.relation_entropy == pytest.approx(entropy, abs=1e-12)
    assert unbalanced.answer_entropy == pytest.approx(entropy + math.log(2), abs=1e-12)


def test_missing_facts_have_probability_0():
    grid = np.array([[0, 2], [1, -1], [1, 3]])
    population = PromptPopulation.from_table(FactTable(grid), noise=2, length=5)
    assert population.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert population.probabilities[3] == 0
    assert np.allclose(population.given_subject[1], [0, 1, 0, 0])
    assert population.relation_entropy == pytest.approx(
        (3 * (math.log(3) - 2 / 3 * math.log(2)) + 2 * math.log(2)) / 5, abs=1e-12
    )
    with jax.enable_x64(True):
        products = jnp.zeros((population.tokens, 4)).at[1, 0].set(50.0)
        statistics, errors = statistics_of(population, products), errors_of(population, products)
    # Only the existing fact about subject 1 contributes.
    assert np.allclose(errors[1], [-0.2, 0.2, 0, 0], atol=1e-12)
    assert float(statistics.relation_distance) == pytest.approx(
        (1 - 1 / 3) ** 2 + (2 / 3) ** 2, abs=1e-9
    )
    assert np.isfinite(np.asarray(statistics.loss_by_subject)).all()


def test_splits_tokens_by_kind():
    population = small_problem.make_population(1.0)
    one_class = population.split_by_kind(np.arange(7))
    assert [part.tolist() for part in one_class] == [[0, 1, 2], [3, 4], [5], [6]]
    single_tokens = population.split_by_kind(np.arange(16).reshape(2, 8))
    assert single_tokens.noise.tolist() == [[5, 6], [13, 14]]
    assert single_tokens.eos.tolist() == [[7], [15]]
    assert np.allclose(
        population.subject_probabilities * np.arange(1, 4), population.subject_probabilities[0]
    )
    assert np.allclose(population.relation_probabilities, 0.5)
