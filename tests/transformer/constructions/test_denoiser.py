"""Blocks, keys and margins of denoising heads, compared with loops over tokens."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.facts import Vocabulary
from factmem.memories.embeddings import sphere
from factmem.transformer import consecutive_blocks, denoiser_margins
from factmem.transformer.constructions import denoiser
from factmem.transformer.constructions.denoiser import (
    largest_separable_block,
    rank_one_heads,
    strongest_noise,
    superposed_keys,
    tokens_read,
)

sizes = st.integers(1, 20)


@given(sizes, sizes, sizes, sizes)
def test_blocks_partition_subjects_and_relations(subjects, relations, noise, size):
    vocabulary = Vocabulary(subjects, relations, noise, 3)
    blocks = consecutive_blocks(vocabulary, size)
    assert blocks.shape[1] == vocabulary.prompt_tokens
    assert (blocks[:, : vocabulary.first_noise].sum(axis=0) == 1).all()
    assert not blocks[:, vocabulary.first_noise :].any()
    for kind, count in ((slice(0, subjects), subjects), (slice(subjects, None), relations)):
        sizes_of_kind = blocks[:, kind].sum(axis=1)
        sizes_of_kind = sizes_of_kind[sizes_of_kind > 0]
        assert sizes_of_kind.max() <= size
        assert sizes_of_kind.max() - sizes_of_kind.min() <= 1
        assert len(sizes_of_kind) == -(-count // size)
    assert (blocks[:, :subjects].any(axis=1) != blocks[:, subjects:].any(axis=1)).all()


@given(st.integers(0, 10**6), st.sampled_from([1, 40, 2**22]))
def test_superposed_keys_are_sums_over_blocks(seed, entries):
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(9, 4)).astype(np.float32)
    blocks = rng.random((5, 9)) < 0.3
    expected = [tokens[block].astype(float).sum(axis=0) + 0.5 * tokens[-1] for block in blocks]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denoiser, "_MAX_ENTRIES", entries)
        keys = superposed_keys(jnp.asarray(tokens), blocks)
    np.testing.assert_allclose(keys, expected, rtol=1e-5, atol=1e-5)


@given(st.integers(0, 10**6), st.sampled_from([1, 40, 2**22]))
def test_tokens_read_have_the_highest_score(seed, entries):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(9, 3))
    known = np.argsort(rng.random((7, 9)), axis=1)[:, :3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denoiser, "_MAX_ENTRIES", entries)
        read = tokens_read(scores, known)
    expected = [
        [max(tokens, key=lambda z, h=head: scores[z, h]) for head in range(3)] for tokens in known
    ]
    np.testing.assert_array_equal(read, expected)


def test_rejects_blocks_that_do_not_fit_into_memory():
    with pytest.raises(FactmemError, match=r"100001 blocks of 200002 tokens need 18\.6 GiB"):
        consecutive_blocks(Vocabulary(10**5, 1, 10**5, 1), 1)


def test_rejects_block_size_0():
    with pytest.raises(FactmemError, match="block size must be at least 1, got 0"):
        consecutive_blocks(Vocabulary(2, 2, 1, 1), 0)


def test_superposed_key_scores_have_the_mean_and_variance_of_the_lemma():
    """Means 1{z ∈ B} and θ; variance (|B| + θ²)/d without the token's own term."""
    dim, block, draws = 48, 4, 4000
    blocks = np.zeros((1, 12), bool)
    blocks[0, :block] = True

    def scores(key):
        tokens = sphere(12, dim, key=key)
        return tokens @ superposed_keys(tokens, blocks)[0]

    samples = jax.jit(jax.vmap(scores))(jr.split(jr.key(0), draws))
    mean = np.asarray(samples.mean(axis=0))
    variance = np.asarray(samples.var(axis=0))
    atol = 5 * np.sqrt((block + 0.25) / dim / draws)
    np.testing.assert_allclose(mean[:block], 1.0, atol=atol)
    np.testing.assert_allclose(mean[block:-1], 0.0, atol=atol)
    np.testing.assert_allclose(mean[-1], 0.5, atol=atol)
    np.testing.assert_allclose(variance[:block], (block - 1 + 0.25) / dim, rtol=0.12)
    np.testing.assert_allclose(variance[block:-1], (block + 0.25) / dim, rtol=0.12)
    np.testing.assert_allclose(variance[-1], block / dim, rtol=0.12)


def test_rank_one_heads():
    keys, query = jr.normal(jr.key(0), (3, 5)), jr.normal(jr.key(1), (5,))
    queries, rows = rank_one_heads(keys, query, 2)
    for head in range(3):
        product = np.asarray(rows[head]).T @ np.asarray(queries[head])
        np.testing.assert_allclose(product, np.outer(keys[head], query), rtol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([1, 7, 2**22]))
def test_margins_and_strongest_noise_match_loops(seed, entries):
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary(3, 2, 4, 2)
    scores = rng.normal(size=(vocabulary.prompt_tokens, 3)).astype(np.float32)
    blocks = np.zeros((3, vocabulary.prompt_tokens), bool)
    blocks[0, :2] = blocks[1, 2] = blocks[2, 3:5] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denoiser, "_MAX_ENTRIES", entries)
        margins = denoiser_margins(jnp.asarray(scores), blocks)
    for head in range(3):
        gaps = [
            scores[z, head] - scores[vocabulary.eos, head]
            if blocks[head, z]
            else scores[vocabulary.eos, head] - scores[z, head]
            for z in range(vocabulary.eos)
        ]
        assert margins[head] == pytest.approx(min(gaps), abs=1e-6)
    strongest = {
        max(range(vocabulary.first_noise, vocabulary.eos), key=lambda z, h=head: scores[z, h])
        for head in range(3)
    }
    assert set(strongest_noise(jnp.asarray(scores), vocabulary).tolist()) == strongest


def test_largest_separable_block_separates_most_draws():
    vocabulary = Vocabulary(24, 24, 48, 4)
    dim = 512
    size = largest_separable_block(dim, vocabulary)
    assert size >= 3
    blocks = consecutive_blocks(vocabulary, size)

    def scores(key):
        tokens = sphere(vocabulary.prompt_tokens, dim, key=key)
        return tokens @ superposed_keys(tokens, blocks).T

    margins = [denoiser_margins(s, blocks).min() for s in map(scores, jr.split(jr.key(0), 10))]
    assert np.mean(np.array(margins) > 0) >= 0.8
    assert largest_separable_block(2, vocabulary) == 1
