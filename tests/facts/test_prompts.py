"""The distribution of prompts."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution, count_tokens

TABLE = FactTable.random(6, 4, 3)
PARTIAL = FactTable(np.where(np.arange(24).reshape(6, 4) % 5 == 0, -1, TABLE.answer_of))


def assert_consistent(observed, probabilities):
    """Check counts with a χ² test that a correct sampler fails once in 10^5."""
    expected = np.asarray(probabilities) * observed.sum()
    assert observed[expected == 0].sum() == 0
    possible = expected > 0
    assert chisquare(observed[possible], expected[possible]).pvalue > 1e-5


def joint(first, second, rows, columns):
    """Count how often each pair of values occurs."""
    pairs = np.asarray(first) * columns + np.asarray(second)
    return np.bincount(pairs.ravel(), minlength=rows * columns).reshape(rows, columns)


@pytest.mark.parametrize("table", [TABLE, PARTIAL])
@pytest.mark.parametrize("length", [3, 4, 12])
def test_prompts_have_one_subject_one_relation_noise_and_eos(table, length):
    prompts = PromptDistribution.from_table(table, noise=5, length=length)
    vocabulary = prompts.vocabulary
    batch = prompts.sample_batch(500, form="tokens", key=jr.key(0))
    tokens = np.asarray(batch.content)
    assert tokens.shape == (500, length)
    assert (tokens[:, -1] == vocabulary.eos).all()
    assert ((tokens == vocabulary.eos).sum(axis=1) == 1).all()
    is_subject = tokens < vocabulary.first_relation
    is_relation = (tokens >= vocabulary.first_relation) & (tokens < vocabulary.first_noise)
    assert (is_subject.sum(axis=1) == 1).all()
    assert (is_relation.sum(axis=1) == 1).all()
    subject, relation = tokens[is_subject], tokens[is_relation] - vocabulary.first_relation
    assert (np.asarray(batch.answers) == table.answer_of[subject, relation]).all()
    ids = np.stack(table.fact_ids)[:, np.asarray(batch.fact_ids)]
    assert (ids[0] == subject).all()
    assert (ids[1] == relation).all()


@given(seed=st.integers(0, 2**31 - 1), length=st.sampled_from([3, 6]))
def test_counts_match_tokens_of_the_same_key(seed, length):
    prompts = PromptDistribution.from_table(TABLE, noise=4, length=length)
    tokens = prompts.sample_batch(16, form="tokens", key=jr.key(seed))
    counts = prompts.sample_batch(16, form="counts", key=jr.key(seed))
    size = prompts.vocabulary.prompt_tokens
    expected = [np.bincount(row, minlength=size) for row in np.asarray(tokens.content)]
    assert np.array_equal(counts.content, expected)
    assert np.array_equal(counts.fact_ids, tokens.fact_ids)
    assert np.array_equal(counts.answers, tokens.answers)


@given(seed=st.integers(0, 2**31 - 1), length=st.sampled_from([3, 6]), stratified=st.booleans())
def test_split_prompts_match_tokens_of_the_same_key(seed, length, stratified):
    prompts = PromptDistribution.from_table(TABLE, noise=4, length=length)
    tokens, split = (
        prompts.sample_batch(16, form=form, stratified=stratified, key=jr.key(seed))
        for form in ("tokens", "split")
    )
    first_noise, size = prompts.vocabulary.first_noise, prompts.vocabulary.prompt_tokens
    for row, own, shared in zip(tokens.content, *split.content, strict=True):
        counts = np.bincount(row, minlength=size)
        assert np.flatnonzero(counts[:first_noise]).tolist() == own.tolist()
        assert np.array_equal(counts[first_noise:], shared)
    assert np.array_equal(split.fact_ids, tokens.fact_ids)
    assert np.array_equal(split.answers, tokens.answers)


def test_count_tokens_counts_repeats():
    counts = count_tokens(jnp.array([[0, 2, 2, 2], [1, 0, 3, 0]]), 4)
    assert counts.tolist() == [[1, 0, 3, 0], [2, 1, 0, 1]]


def test_count_tokens_accepts_any_integer_type():
    tokens = jnp.array([[99, 99]] * 4, jnp.int8)
    assert count_tokens(tokens, 100).sum(axis=1).tolist() == [2, 2, 2, 2]


def test_count_tokens_rejects_sizes_above_32_bits():
    with pytest.raises(FactmemError, match="1000 × 3000000"):
        jax.eval_shape(lambda t: count_tokens(t, 3_000_000), jnp.zeros((1000, 4), jnp.int32))


def test_positions_of_subject_and_relation_are_uniform():
    length = 7
    prompts = PromptDistribution.from_table(TABLE, length=length)
    tokens = np.asarray(prompts.sample_batch(30_000, form="tokens", key=jr.key(1)).content)
    subject = np.argmax(tokens < prompts.vocabulary.first_relation, axis=1)
    is_relation = tokens < prompts.vocabulary.first_noise
    is_relation[np.arange(30_000), subject] = False
    relation = np.argmax(is_relation, axis=1)
    observed = joint(subject, relation, length - 1, length - 1)
    allowed = 1 - np.eye(length - 1)
    assert_consistent(observed.ravel(), (allowed / allowed.sum()).ravel())


@pytest.mark.parametrize("noise", [5, 64, 240, 300])
def test_noise_is_uniform(noise):
    prompts = PromptDistribution.from_table(TABLE, noise=noise, length=32)
    counts = np.asarray(prompts.sample_batch(4_000, form="counts", key=jr.key(2)).content)
    observed = counts[:, prompts.vocabulary.first_noise : prompts.vocabulary.eos].sum(axis=0)
    assert observed.sum() == 4_000 * 29
    assert_consistent(observed, np.full(noise, 1 / noise))


@pytest.mark.parametrize("noise", [3, 7])
def test_noise_tokens_are_pairwise_independent(noise):
    # Pairs of tokens come from one random word, so all pairs of positions are tested.
    prompts = PromptDistribution.from_table(TABLE, noise=noise, length=8)
    tokens = np.asarray(prompts._unordered_tokens(jr.key(3), jnp.zeros(20_000, jnp.int32)))
    samples = tokens[:, 2:-1] - prompts.vocabulary.first_noise
    for i in range(samples.shape[1]):
        for j in range(i):
            observed = joint(samples[:, i], samples[:, j], noise, noise)
            assert_consistent(observed.ravel(), np.full(noise**2, noise**-2.0))


def test_noise_is_independent_of_the_fact():
    prompts = PromptDistribution.from_table(TABLE, noise=3, length=4)
    batch = prompts.sample_batch(60_000, form="counts", key=jr.key(5))
    noise = np.argmax(np.asarray(batch.content)[:, 10:13], axis=1)
    assert_consistent(joint(batch.fact_ids, noise, 24, 3).ravel(), np.full(72, 1 / 72))


@pytest.mark.parametrize("table", [TABLE, PARTIAL])
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (1.5, 0.0), (0.0, 2.0), (1.0, -0.5)])
def test_facts_follow_power_laws(table, alpha, beta):
    prompts = PromptDistribution.from_table(table, subject_power=alpha, relation_power=beta)
    samples = np.asarray(prompts.draw_facts(40_000, key=jr.key(4)))
    weight = np.zeros((6, 4))
    for s in range(6):
        for r in range(4):
            if table.answer_of[s, r] >= 0:
                weight[s, r] = 1 / (s + 1) ** alpha / (r + 1) ** beta
    probabilities = weight[table.answer_of >= 0] / weight.sum()
    assert_consistent(np.bincount(samples, minlength=table.facts), probabilities)


def test_thresholds_are_exact_for_many_facts():
    # A float32 cumulative sum would give the last facts zero or several times their probability.
    table = FactTable(np.zeros((300_000, 1), int))
    prompts = PromptDistribution.from_table(table, noise=1, subject_power=0.01)
    steps = np.diff(np.asarray(prompts.thresholds).astype(np.int64))[-1000:]
    weight = np.arange(1.0, 300_001) ** -0.01
    expected = (weight / weight.sum())[-1001:-1] * 2.0**32
    assert np.abs(steps - expected).max() <= 1


def test_sample_returns_prompts_of_the_given_facts():
    prompts = PromptDistribution.from_table(PARTIAL)
    batch = prompts.sample(jnp.arange(PARTIAL.facts), form="counts", key=jr.key(0))
    s, r, a = PARTIAL.fact_ids
    assert (batch.answers == a).all()
    assert (np.asarray(batch.content)[np.arange(len(s)), s] == 1).all()
    assert (np.asarray(batch.content)[np.arange(len(s)), 6 + r] == 1).all()


def test_tables_of_one_shape_compile_once():
    traces = []

    @jax.jit
    def sample(prompts, key):
        traces.append(1)
        return prompts.sample_batch(8, form="counts", key=key)

    for seed in range(3):
        sample(PromptDistribution.from_table(FactTable.random(6, 4, 3, seed=seed)), jr.key(seed))
    assert len(traces) == 1


def test_default_noise_and_length():
    prompts = PromptDistribution.from_table(TABLE)
    assert (prompts.vocabulary.noise, prompts.length) == (10, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2}, "length must be at least 3 .*, got 2"),
        ({"noise": 0}, "noise must be at least 1, got 0"),
        ({"noise": -1}, "noise must be at least 1, got -1"),
        ({"subject_power": float("nan")}, "subject_power must be finite"),
        ({"relation_power": float("inf")}, "relation_power must be finite"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(FactmemError, match=message):
        PromptDistribution.from_table(TABLE, **options)


def test_fill_noise_repeats_one_noise_token():
    table = FactTable.random(5, 3, 2, seed=4)
    prompts = PromptDistribution.from_table(table, noise=4, length=9)
    vocabulary = prompts.vocabulary
    fact_ids = jnp.asarray([7, 0, 14])
    batch = prompts.fill_noise(fact_ids, jnp.asarray(vocabulary.first_noise + 2))
    for row, fact in zip(np.asarray(batch.content), [7, 0, 14], strict=True):
        s, r, _ = (ids[fact] for ids in table.fact_ids)
        expected = np.zeros(vocabulary.prompt_tokens, int)
        expected[[s, vocabulary.first_relation + r, vocabulary.eos]] = 1
        expected[vocabulary.first_noise + 2] = 6
        np.testing.assert_array_equal(row, expected)
    np.testing.assert_array_equal(batch.answers, table.fact_ids[2][[7, 0, 14]])


def test_every_prompt_contains_the_known_tokens():
    prompts = PromptDistribution.from_table(FactTable.random(5, 3, 2, seed=4), noise=4, length=9)
    counts = prompts.sample_counts(jnp.arange(prompts.facts), key=jr.key(0))
    known = prompts.known_tokens()
    assert known.shape == (15, 3)
    assert (np.take_along_axis(np.asarray(counts), known, axis=1) == 1).all()


def test_table_of_a_distribution_has_the_same_facts():
    grid = np.array(FactTable.random(5, 3, 2, seed=4).answer_of)
    grid[2, 1] = MISSING
    table = FactTable(grid, answer_names=tuple("abcdefgh"))
    copy = PromptDistribution.from_table(table).table
    np.testing.assert_array_equal(copy.answer_of, grid)
    assert copy.answers == table.answers == 8
    assert copy.association_bits == table.association_bits


@pytest.mark.parametrize("powers", [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0)])
@pytest.mark.parametrize(("table", "batch"), [(TABLE, 7), (PARTIAL, 24), (TABLE, 64)])
def test_stratified_facts_follow_the_distribution(table, batch, powers):
    prompts = PromptDistribution.from_table(
        table, subject_power=powers[0], relation_power=powers[1]
    )
    keys = jr.split(jr.key(0), 4000)
    draw = jax.jit(jax.vmap(lambda key: prompts.draw_facts_stratified(batch, key=key)))
    samples = np.asarray(draw(keys))
    s, r, _ = table.fact_ids
    probabilities = (s + 1.0) ** -powers[0] * (r + 1.0) ** -powers[1]
    probabilities /= probabilities.sum()
    # Slices are independent, and each covers its own part of the facts.
    edges = np.concatenate([[0], np.cumsum(probabilities)]) * batch
    for index in range(batch):
        expected = np.diff(np.clip(edges, index, index + 1))
        observed = np.bincount(samples[:, index], minlength=table.facts)
        possible = expected > 1e-6
        assert observed[~possible].sum() <= 4
        if possible.sum() > 1:
            assert_consistent(observed[possible], expected[possible] / expected[possible].sum())


@given(st.sampled_from([1, 7, 40]), st.sampled_from([1, 6, 7, 8, 50]), st.integers(0, 2**31 - 1))
def test_stratified_counts_are_within_two_of_the_mean(facts, batch, seed):
    prompts = PromptDistribution.from_table(FactTable.random(facts, 1, 1))
    samples = prompts.draw_facts_stratified(batch, key=jr.key(seed))
    counts = np.bincount(samples, minlength=facts)
    assert counts.shape == (facts,)
    assert (np.abs(counts - batch / facts) < 2).all()


def test_stratified_counts_are_equal_if_facts_divide_the_batch():
    prompts = PromptDistribution.from_table(TABLE)
    batch = prompts.sample_batch(72, form="counts", stratified=True, key=jr.key(3))
    assert np.bincount(batch.fact_ids).tolist() == [3] * 24
    assert np.array_equal(batch.answers, prompts.fact_answers[batch.fact_ids])


def test_stratified_facts_do_not_overflow():
    """index · facts exceeds 32 bits."""
    prompts = PromptDistribution.from_table(FactTable.random(3000, 1500, 2))
    samples = np.asarray(prompts.draw_facts_stratified(1024, key=jr.key(0)))
    index = np.arange(1024)
    assert (samples >= index * 4_500_000 // 1024).all()
    assert (samples <= (index + 1) * 4_500_000 // 1024).all()


def test_one_stratified_fact_may_be_any_fact():
    prompts = PromptDistribution.from_table(TABLE, subject_power=1.0)
    samples = {int(prompts.draw_facts_stratified(1, key=jr.key(seed))[0]) for seed in range(300)}
    assert len(samples) > 15
