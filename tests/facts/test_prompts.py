"""Prompts follow the paper's distribution, and counts are the counts of the tokens."""

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


def assert_follows(observed, expected_share):
    """The counts could have come from these probabilities (a sound sampler fails once in 10^5)."""
    expected = np.asarray(expected_share) * observed.sum()
    assert observed[expected == 0].sum() == 0
    kept = expected > 0
    assert chisquare(observed[kept], expected[kept]).pvalue > 1e-5


def joint(first, second, rows, columns):
    """How often each pair of values occurs."""
    pairs = np.asarray(first) * columns + np.asarray(second)
    return np.bincount(pairs.ravel(), minlength=rows * columns).reshape(rows, columns)


@pytest.mark.parametrize("table", [TABLE, PARTIAL])
@pytest.mark.parametrize("length", [3, 4, 12])
def test_every_prompt_has_one_subject_one_relation_noise_and_eos(table, length):
    asked = PromptDistribution.of(table, noise=5, length=length)
    names = asked.vocabulary
    prompts = asked.sample(jr.key(0), 500, form="tokens")
    tokens = np.asarray(prompts.content)
    assert tokens.shape == (500, length)
    assert (tokens[:, -1] == names.eos).all()
    assert ((tokens == names.eos).sum(axis=1) == 1).all()
    is_subject = tokens < names.first_relation
    is_relation = (tokens >= names.first_relation) & (tokens < names.first_noise)
    assert (is_subject.sum(axis=1) == 1).all()
    assert (is_relation.sum(axis=1) == 1).all()
    subject, relation = tokens[is_subject], tokens[is_relation] - names.first_relation
    assert (np.asarray(prompts.answers) == table.answer_of[subject, relation]).all()
    ids = np.stack(table.fact_ids)[:, np.asarray(prompts.facts)]
    assert (ids[0] == subject).all()
    assert (ids[1] == relation).all()


@given(seed=st.integers(0, 2**31 - 1), length=st.sampled_from([3, 6]))
def test_counts_count_the_tokens_of_the_same_key(seed, length):
    asked = PromptDistribution.of(TABLE, noise=4, length=length)
    tokens = asked.sample(jr.key(seed), 16, form="tokens")
    counts = asked.sample(jr.key(seed), 16, form="counts")
    size = asked.vocabulary.prompt_tokens
    expected = [np.bincount(row, minlength=size) for row in np.asarray(tokens.content)]
    assert np.array_equal(counts.content, expected)
    assert np.array_equal(counts.facts, tokens.facts)
    assert np.array_equal(counts.answers, tokens.answers)


def test_count_tokens_counts_repeats():
    counts = count_tokens(jnp.array([[0, 2, 2, 2], [1, 0, 3, 0]]), 4)
    assert counts.tolist() == [[1, 0, 3, 0], [2, 1, 0, 1]]


def test_tokens_of_any_whole_type_are_counted():
    tokens = jnp.array([[99, 99]] * 4, jnp.int8)
    assert count_tokens(tokens, 100).sum(axis=1).tolist() == [2, 2, 2, 2]


def test_more_counts_than_can_be_numbered_are_refused():
    with pytest.raises(FactmemError, match="too many"):
        jax.eval_shape(lambda t: count_tokens(t, 3_000_000), jnp.zeros((1000, 4), jnp.int32))


def test_places_of_subject_and_relation_are_uniform_over_distinct_pairs():
    length = 7
    asked = PromptDistribution.of(TABLE, length=length)
    tokens = np.asarray(asked.sample(jr.key(1), 30_000, form="tokens").content)
    subject = np.argmax(tokens < asked.vocabulary.first_relation, axis=1)
    is_relation = tokens < asked.vocabulary.first_noise
    is_relation[np.arange(30_000), subject] = False
    relation = np.argmax(is_relation, axis=1)
    observed = joint(subject, relation, length - 1, length - 1)
    allowed = 1 - np.eye(length - 1)
    assert_follows(observed.ravel(), (allowed / allowed.sum()).ravel())


@pytest.mark.parametrize("noise", [5, 64, 240, 300])
def test_noise_is_uniform_in_every_place(noise):
    asked = PromptDistribution.of(TABLE, noise=noise, length=32)
    counts = np.asarray(asked.sample(jr.key(2), 4_000, form="counts").content)
    observed = counts[:, asked.vocabulary.first_noise : asked.vocabulary.eos].sum(axis=0)
    assert observed.sum() == 4_000 * 29
    assert_follows(observed, np.full(noise, 1 / noise))


@pytest.mark.parametrize("noise", [3, 7])
def test_any_two_noise_tokens_of_a_prompt_are_independent(noise):
    # Tokens share random words in pairs; every pair of places is looked at.
    asked = PromptDistribution.of(TABLE, noise=noise, length=8)
    drawn = np.asarray(asked._contents(jr.key(3), jnp.zeros(20_000, jnp.int32)))
    drawn = drawn[:, 2:-1] - asked.vocabulary.first_noise
    for i in range(drawn.shape[1]):
        for j in range(i):
            observed = joint(drawn[:, i], drawn[:, j], noise, noise)
            assert_follows(observed.ravel(), np.full(noise**2, noise**-2.0))


def test_noise_does_not_depend_on_the_fact():
    asked = PromptDistribution.of(TABLE, noise=3, length=4)
    prompts = asked.sample(jr.key(5), 60_000, form="counts")
    noise = np.argmax(np.asarray(prompts.content)[:, 10:13], axis=1)
    assert_follows(joint(prompts.facts, noise, 24, 3).ravel(), np.full(72, 1 / 72))


@pytest.mark.parametrize("table", [TABLE, PARTIAL])
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (1.5, 0.0), (0.0, 2.0), (1.0, -0.5)])
def test_facts_follow_their_power_laws(table, alpha, beta):
    asked = PromptDistribution.of(table, subject_power=alpha, relation_power=beta)
    drawn = np.asarray(asked.draw_facts(jr.key(4), 40_000))
    weight = np.zeros((6, 4))
    for s in range(6):
        for r in range(4):
            if table.answer_of[s, r] >= 0:
                weight[s, r] = 1 / (s + 1) ** alpha / (r + 1) ** beta
    share = weight[table.answer_of >= 0] / weight.sum()
    assert_follows(np.bincount(drawn, minlength=table.facts), share)


def test_rare_facts_among_very_many_keep_their_share():
    # A float32 cumulative sum would give the last facts 0 or several times their probability.
    table = FactTable(np.zeros((300_000, 1), int))
    asked = PromptDistribution.of(table, noise=1, subject_power=0.01)
    steps = np.diff(np.asarray(asked.thresholds).astype(np.int64))[-1000:]
    share = np.arange(1.0, 300_001) ** -0.01
    expected = (share / share.sum())[-1001:-1] * 2.0**32
    assert np.abs(steps - expected).max() <= 1


def test_asking_for_given_facts_gives_these_facts():
    asked = PromptDistribution.of(PARTIAL)
    every = jnp.arange(PARTIAL.facts)
    prompts = asked.ask(jr.key(0), every, form="counts")
    s, r, a = PARTIAL.fact_ids
    assert (prompts.answers == a).all()
    assert (np.asarray(prompts.content)[np.arange(len(s)), s] == 1).all()
    assert (np.asarray(prompts.content)[np.arange(len(s)), 6 + r] == 1).all()


def test_tables_of_one_shape_share_a_compiled_sampler():
    traces = []

    @jax.jit
    def sample(asked, key):
        traces.append(1)
        return asked.sample(key, 8, form="counts")

    for seed in range(3):
        sample(PromptDistribution.of(FactTable.random(6, 4, 3, seed=seed)), jr.key(seed))
    assert len(traces) == 1


def test_the_paper_has_as_many_noise_tokens_as_subjects_and_relations():
    asked = PromptDistribution.of(TABLE)
    assert (asked.vocabulary.noise, asked.length) == (10, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2}, "at least 3, not 2"),
        ({"noise": 0}, "at least one noise token"),
        ({"noise": -1}, "at least one noise token"),
        ({"subject_power": float("nan")}, "subject_power must be a finite number"),
        ({"relation_power": float("inf")}, "relation_power must be a finite number"),
    ],
)
def test_impossible_prompts_say_what_is_wrong(options, message):
    with pytest.raises(FactmemError, match=message):
        PromptDistribution.of(TABLE, **options)


def test_filled_prompts_hold_one_noise_token_alone():
    table = FactTable.random(5, 3, 2, seed=4)
    asked = PromptDistribution.of(table, noise=4, length=9)
    names = asked.vocabulary
    facts = jnp.asarray([7, 0, 14])
    prompts = asked.fill(facts, jnp.asarray(names.first_noise + 2))
    for row, fact in zip(np.asarray(prompts.content), [7, 0, 14], strict=True):
        s, r, _ = (ids[fact] for ids in table.fact_ids)
        expected = np.zeros(names.prompt_tokens, int)
        expected[[s, names.first_relation + r, names.eos]] = 1
        expected[names.first_noise + 2] = 6
        np.testing.assert_array_equal(row, expected)
    np.testing.assert_array_equal(prompts.answers, table.fact_ids[2][[7, 0, 14]])


def test_known_tokens_stand_in_every_prompt():
    asked = PromptDistribution.of(FactTable.random(5, 3, 2, seed=4), noise=4, length=9)
    counts = asked.counts(jr.key(0), jnp.arange(asked.facts))
    known = asked.known_tokens()
    assert known.shape == (15, 3)
    assert (np.take_along_axis(np.asarray(counts), known, axis=1) == 1).all()


def test_the_table_comes_back_without_its_names():
    grid = np.array(FactTable.random(5, 3, 2, seed=4).answer_of)
    grid[2, 1] = MISSING
    table = FactTable(grid, answer_names=tuple("abcdefgh"))
    back = PromptDistribution.of(table).table
    np.testing.assert_array_equal(back.answer_of, grid)
    assert back.answers == table.answers == 8
    assert back.association_bits == table.association_bits


EVEN = [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0)]


@pytest.mark.parametrize("powers", EVEN)
@pytest.mark.parametrize(("table", "batch"), [(TABLE, 7), (PARTIAL, 24), (TABLE, 64)])
def test_facts_that_are_drawn_evenly_are_as_likely_as_independent_ones(table, batch, powers):
    asked = PromptDistribution.of(table, subject_power=powers[0], relation_power=powers[1])
    keys = jr.split(jr.key(0), 4000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: asked.draw_facts_evenly(key, batch)))(keys))
    s, r, _ = table.fact_ids
    share = (s + 1.0) ** -powers[0] * (r + 1.0) ** -powers[1]
    share /= share.sum()
    # Draws of different slices are independent, and each has its own part of the facts.
    edges = np.concatenate([[0], np.cumsum(share)]) * batch
    for place in range(batch):
        part = np.clip(edges, place, place + 1)
        expected = np.diff(part)
        observed = np.bincount(drawn[:, place], minlength=table.facts)
        possible = expected > 1e-6
        assert observed[~possible].sum() <= 4
        if possible.sum() > 1:
            assert_follows(observed[possible], expected[possible] / expected[possible].sum())


@given(st.sampled_from([1, 7, 40]), st.sampled_from([1, 6, 7, 8, 50]), st.integers(0, 2**31 - 1))
def test_how_often_a_fact_comes_hardly_varies_when_drawn_evenly(facts, batch, seed):
    asked = PromptDistribution.of(FactTable.random(facts, 1, 1))
    drawn = asked.draw_facts_evenly(jr.key(seed), batch)
    often = np.bincount(drawn, minlength=facts)
    assert often.shape == (facts,)
    assert (np.abs(often - batch / facts) < 2).all()


def test_a_whole_number_of_rounds_has_every_fact_equally_often():
    asked = PromptDistribution.of(TABLE)
    prompts = asked.sample(jr.key(3), 72, form="counts", evenly=True)
    assert np.bincount(prompts.facts).tolist() == [3] * 24
    assert np.array_equal(prompts.answers, asked.fact_answers[prompts.facts])


def test_batches_of_very_many_facts_are_drawn_evenly():
    """i · facts does not fit into 32 bits."""
    asked = PromptDistribution.of(FactTable.random(3000, 1500, 2))
    drawn = np.asarray(asked.draw_facts_evenly(jr.key(0), 1024))
    place = np.arange(1024)
    assert (drawn >= place * 4_500_000 // 1024).all()
    assert (drawn <= (place + 1) * 4_500_000 // 1024).all()


def test_one_place_draws_from_all():
    asked = PromptDistribution.of(TABLE, subject_power=1.0)
    drawn = {int(asked.draw_facts_evenly(jr.key(seed), 1)[0]) for seed in range(300)}
    assert len(drawn) > 15
