"""Certificates cover float32 in every form of prompts, also where exact numbers cancel or vanish.

Each test has a model in which one kind of rounding error is as large as it can be.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from factmem.facts import FactTable, PromptDistribution
from factmem.facts.prompts import SplitPrompts, TokenPrompts, count_tokens
from factmem.transformer import Embeddings, Shape, Transformer, Weights, certify
from factmem.transformer.certificate import _scores
from factmem.transformer.dense import dense_logits


def two_facts(noise=2, length=5):
    """Facts (0, 0) and (1, 0), with answers 0 and 1."""
    return PromptDistribution.from_table(
        FactTable(np.array([[0], [1]])), noise=noise, length=length
    )


def build(prompts, tokens, answers, query, key, value, output, mlp=None):
    """Return a transformer with these heads and this MLP (input matrix, biases, outputs)."""
    heads, head_dim, dim = np.shape(query)
    mlp = mlp or (np.zeros((0, dim)), np.zeros(0), np.zeros((0, dim)))
    tokens, answers, *parts = (
        jnp.asarray(np.asarray(array, np.float32))
        for array in (tokens, answers, query, key, value, output, *mlp)
    )
    weights = Weights(*parts)
    shape = Shape(dim, heads, head_dim, len(mlp[1]))
    return Transformer(weights, Embeddings(tokens, answers), shape, prompts.vocabulary)


def row(axis, size=1.0, dim=4):
    return size * np.eye(dim)[axis][None, None]


@eqx.filter_jit
def logits_of(model, content):
    return model.logits(content)


def margins_in_all_forms(model, tokens):
    """Return the margins of answer 0 over answer 1 for each prompt: counts, split and tokens."""
    tokens = jnp.asarray(tokens)
    counts = count_tokens(tokens, model.vocabulary.prompt_tokens)
    shared = counts[:, model.vocabulary.first_noise :]
    forms = counts, SplitPrompts(tokens[:, :2], shared), TokenPrompts(tokens)
    for content in forms:
        logits = np.asarray(logits_of(model, content), float)
        yield logits[:, 0] - logits[:, 1]


@pytest.mark.parametrize("share", [1e-12, 1e-16, 1e-18])
def test_small_shares_with_large_values_are_not_lost(share):
    """The relation has a tiny share and a huge value; another subject scores 105 nats higher.

    Where a batch shares one shift, the weight of the relation is flushed to zero.
    """
    prompts = two_facts()
    tokens = np.zeros((6, 4))
    tokens[:, 1], tokens[-1, 0] = -200, 1
    tokens[:3, 1] = 0, 105, np.log(share)
    tokens[0, 2], tokens[2, 2] = -1, 10 / share
    answers = row(0)[0] * np.array([[1.0], [-1.0]])
    model = build(prompts, tokens, answers, row(0), row(1), row(2), row(0))
    certified = certify(model, prompts).margins[0]
    batch = [[0, 2, 3, 3, 5], [1, 2, 3, 3, 5]]
    assert all(certified <= margins[0] for margins in margins_in_all_forms(model, batch))


@pytest.mark.parametrize(("length", "noise"), [(20, 40), (60, 40), (200, 100)])
def test_values_that_cancel_are_as_uncertain_as_their_terms(length, noise):
    """The value of φ is φ₂ − φ₃, a small number: prompts as tokens add up φ₂ and φ₃ first."""
    prompts = two_facts(noise, length)
    vocabulary, rng = prompts.vocabulary, np.random.default_rng(1)
    large = (1000 * (1 + rng.random(vocabulary.prompt_tokens))).astype(np.float32).astype(float)
    draws = rng.integers(vocabulary.first_noise, vocabulary.eos, size=(1000, length))
    draws[:, 0], draws[:, 1], draws[:, -1] = 0, vocabulary.first_relation, vocabulary.eos
    answers = row(0)[0] * np.array([[1.0], [-1.0]])
    for units in (4, 8, 16, 10_000):
        tokens = np.zeros((vocabulary.prompt_tokens, 4))
        tokens[:, 2], tokens[:, 3], tokens[-1, 0] = large + units * 2.0**-13, large, 1
        value = row(2) - row(3)
        model = build(prompts, tokens, answers, row(0), 0 * row(1), value, row(0))
        certified = certify(model, prompts).margins[0]
        assert all(certified <= margins.min() for margins in margins_in_all_forms(model, draws))
    assert certified > 0  # a larger value is certified


@pytest.mark.parametrize("size", [1e10, 1e20])
def test_subnormal_answers_may_vanish(size):
    prompts = two_facts()
    tokens = np.zeros((6, 4))
    tokens[:2, 1], tokens[:2, 2], tokens[-1, 0] = 60, [1, -1], 1
    answers = row(0)[0] * np.array([[1e-38], [-1e-38]])
    model = build(prompts, tokens, answers, row(0), row(1), row(2), row(0, size))
    certified = certify(model, prompts).margins
    assert (certified <= 0).all()


@pytest.mark.parametrize("dim", [256, 1024])
def test_scores_are_bounded_in_both_orders_of_their_products(dim):
    """(φ K) q with rows of K that nearly cancel, summed in different orders."""
    prompts, rng = two_facts(), np.random.default_rng(0)
    tokens = rng.random((6, dim + 1))
    tokens[:, -1] = 0
    tokens[-1] = np.eye(dim + 1)[-1]
    key = np.zeros((1, 2, dim + 1))
    key[0, :, :dim] = 1 + rng.random(dim)
    query = np.zeros((1, 2, dim + 1))
    query[0, :, -1] = 1, -(1 + 2.0**-20)
    zeros = np.zeros((1, 2, dim + 1))
    model = build(prompts, tokens, np.zeros((2, dim + 1)), query, key, zeros, zeros)
    bound = _scores(model)
    phi, (upper, lower) = np.asarray(model.embeddings.tokens), np.asarray(model.weights.key)[0]
    factors = np.asarray(model.weights.query)[0, :, -1]

    def in_order(products, order):
        return np.add.accumulate(products[:, order], axis=1, dtype=np.float32)[:, -1]

    for _ in range(20):
        one, other = rng.permutation(dim + 1), rng.permutation(dim + 1)
        sums = in_order(phi * upper, one), in_order(phi * lower, other)
        scores = (sums[0] * factors[0] + sums[1] * factors[1]) * np.float32(model.score_scale)
        assert (np.abs(scores - bound.center[:, 0]) <= bound.error[:, 0]).all()


ANSWERS = row(0)[0] * np.array([[1.0], [-1.0]])
BATCH = [[0, 2, 3, 3, 5], [1, 2, 3, 4, 5]]


def test_values_relative_to_the_strongest_are_rounded_at_its_size():
    """Attention by position is v + Σ p (u − v): much noise leaves little of a large v.

    Weights of 3,960 noise tokens are a little more than half a unit in the last place of the sum.
    """
    strong, noise, head_dim = 40, 4000, 2
    value = 0.56 * (strong + 3) / (strong + 2)
    share = (strong + 3) * 2.0**-25 * 1.02 / value
    prompts = two_facts(noise, noise + 3)
    tokens = np.zeros((prompts.vocabulary.prompt_tokens, 4))
    tokens[:2, 2], tokens[-1, 0] = [1, -1], 1
    tokens[3 + strong : -1, 1] = np.log(share)
    zeros = np.zeros((1, head_dim, 4))
    query, key, values, output = (zeros.copy() for _ in range(4))
    query[0, 0, 0], key[0, 0, 1] = 2, 0.5 * np.sqrt(head_dim)
    values[:, :, 2], output[:, 0, 0] = value * 1024, 1
    mlp = np.zeros((1, 4)), np.array([1.0]), np.array([[-13.535, 0, 0, 0]])
    model = build(prompts, tokens, ANSWERS, query, key, values, output, mlp)
    prompt = np.concatenate([[0, 2], np.arange(3, 3 + noise), [3 + noise]])
    logits = eqx.filter_jit(dense_logits)(model, jnp.asarray(prompt))
    certified = certify(model, prompts, noise="distinct").margins[0]
    assert certified <= float(logits[0] - logits[1])


@pytest.mark.parametrize("size", [1e30, 1e3])
def test_scores_that_overflow_certify_nothing(size):
    """All values are equal, so that shares do not matter in exact arithmetic."""
    prompts = two_facts()
    tokens = np.zeros((6, 4))
    tokens[:2, 1], tokens[:, 2], tokens[-1, 0] = 60, 1, 1
    model = build(prompts, tokens, ANSWERS, row(0, size), row(1, size), row(2), row(0))
    certified = certify(model, prompts).margins
    overflows = any(~np.isfinite(margins[0]) for margins in margins_in_all_forms(model, BATCH))
    assert overflows == (size == 1e30)
    assert (certified[0] > 0) != overflows


def test_overflow_of_a_token_outside_the_prompt_certifies_nothing():
    """Token counts multiply the value of every token, also by zero."""
    prompts = PromptDistribution.from_table(FactTable(np.array([[0], [1], [0]])), noise=2, length=5)
    tokens = np.zeros((7, 4))
    tokens[:3, 1], tokens[:3, 2], tokens[2, 3], tokens[-1, 0] = 60, [1, -1, 1], 1e30, 1
    parts = [np.concatenate(pair) for pair in ([row(0)] * 2, [row(1)] * 2)]
    values = np.concatenate([row(2), row(3, 1e30)])
    output = np.concatenate([row(0), 0 * row(0)])
    model = build(prompts, tokens, ANSWERS, *parts, values, output)
    counts, *_ = margins_in_all_forms(model, [[0, 3, 4, 4, 6]])
    assert np.isnan(counts[0])
    assert (certify(model, prompts).margins == -np.inf).all()


@pytest.mark.parametrize("size", [1e35, 1e36, 1e37])
def test_products_of_shares_and_small_embeddings_may_vanish(size):
    """Prompts as tokens multiply attention and φ, which is subnormal, and then by a large V."""
    prompts = two_facts(2, 101)
    tokens = np.zeros((6, 4))
    tokens[:, 2], tokens[-1, 0] = 1 / size, 1
    model = build(prompts, tokens, ANSWERS, row(0), 0 * row(1), row(2, size), row(0))
    prompt = [[0, 2, *[3] * 98, 5]]
    certified = certify(model, prompts).margins[0]
    assert all(certified <= margins[0] for margins in margins_in_all_forms(model, prompt))


def test_a_bias_that_overflows_certifies_nothing():
    """x·W = 1.5e38 and a bias of 3e38 are finite; their sum is not."""
    prompts = two_facts()
    tokens = np.zeros((6, 4))
    tokens[:2, 1], tokens[:2, 2], tokens[:, 3], tokens[-1, 0] = 60, [1, -1], 1, 1
    query, key = np.concatenate([row(0)] * 2), np.concatenate([row(1)] * 2)
    values, output = np.concatenate([row(2), row(3)]), np.concatenate([row(0), row(3, 1.5e38)])
    mlp = row(3)[0], np.array([3.0e38]), row(1, 1e-38)[0]
    model = build(prompts, tokens, ANSWERS, query, key, values, output, mlp)
    assert all(np.isnan(margins).all() for margins in margins_in_all_forms(model, BATCH))
    assert (certify(model, prompts).margins == -np.inf).all()
