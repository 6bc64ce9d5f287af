"""Blocks, keys and margins of the denoiser, against loops over tokens."""

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
from factmem.transformer.constructions.denoiser import (
    largest_separable_block,
    rank_one,
    strongest_noise,
    superposed_key,
)

sizes = st.integers(1, 20)


@given(sizes, sizes, sizes, sizes)
def test_blocks_are_a_partition_of_subjects_and_one_of_relations(subjects, relations, noise, size):
    names = Vocabulary(subjects, relations, noise, 3)
    blocks = consecutive_blocks(names, size)
    assert blocks.shape[1] == names.prompt_tokens
    assert (blocks[:, : names.first_noise].sum(axis=0) == 1).all()
    assert not blocks[:, names.first_noise :].any()
    for kind, count in ((slice(0, subjects), subjects), (slice(subjects, None), relations)):
        of_kind = blocks[:, kind].sum(axis=1)
        of_kind = of_kind[of_kind > 0]
        assert of_kind.max() <= size
        assert of_kind.max() - of_kind.min() <= 1
        assert len(of_kind) == -(-count // size)
    assert (blocks[:, :subjects].any(axis=1) != blocks[:, subjects:].any(axis=1)).all()


def test_no_more_blocks_than_fit():
    with pytest.raises(FactmemError, match="100001 blocks of 200002 tokens"):
        consecutive_blocks(Vocabulary(10**5, 1, 10**5, 1), 1)


def test_no_block_of_nothing():
    with pytest.raises(FactmemError, match="at least one token, not 0"):
        consecutive_blocks(Vocabulary(2, 2, 1, 1), 0)


def test_the_superposed_key_scores_one_a_half_and_nothing_with_the_lemmas_variance():
    """1{z ∈ B} or θ, up to noise of variance (|B| + θ²)/d, less a term that is its own."""
    dim, block, draws = 48, 4, 4000
    blocks = np.zeros((1, 12), bool)
    blocks[0, :block] = True

    def scores(key):
        tokens = sphere(key, 12, dim)
        return tokens @ superposed_key(tokens, blocks)[0]

    found = jax.jit(jax.vmap(scores))(jr.split(jr.key(0), draws))
    mean = np.asarray(found.mean(axis=0))
    variance = np.asarray(found.var(axis=0))
    close = 5 * np.sqrt((block + 0.25) / dim / draws)
    np.testing.assert_allclose(mean[:block], 1.0, atol=close)
    np.testing.assert_allclose(mean[block:-1], 0.0, atol=close)
    np.testing.assert_allclose(mean[-1], 0.5, atol=close)
    np.testing.assert_allclose(variance[:block], (block - 1 + 0.25) / dim, rtol=0.12)
    np.testing.assert_allclose(variance[block:-1], (block + 0.25) / dim, rtol=0.12)
    np.testing.assert_allclose(variance[-1], block / dim, rtol=0.12)


def test_rank_one_keys_and_queries():
    keys, query = jr.normal(jr.key(0), (3, 5)), jr.normal(jr.key(1), (5,))
    queries, rows = rank_one(keys, query, 2)
    for head in range(3):
        together = np.asarray(rows[head]).T @ np.asarray(queries[head])
        np.testing.assert_allclose(together, np.outer(keys[head], query), rtol=1e-6)


@given(st.integers(0, 10**6))
def test_margins_and_strongest_noise_by_loops(seed):
    rng = np.random.default_rng(seed)
    names = Vocabulary(3, 2, 4, 2)
    scores = rng.normal(size=(names.prompt_tokens, 3)).astype(np.float32)
    blocks = np.zeros((3, names.prompt_tokens), bool)
    blocks[0, :2] = blocks[1, 2] = blocks[2, 3:5] = True
    margins = denoiser_margins(jnp.asarray(scores), blocks)
    for head in range(3):
        gaps = [
            scores[z, head] - scores[names.eos, head]
            if blocks[head, z]
            else scores[names.eos, head] - scores[z, head]
            for z in range(names.eos)
        ]
        assert margins[head] == pytest.approx(min(gaps), abs=1e-6)
    strongest = {
        max(range(names.first_noise, names.eos), key=lambda z, h=head: scores[z, h])
        for head in range(3)
    }
    assert set(strongest_noise(jnp.asarray(scores), names).tolist()) == strongest


def test_the_default_block_separates():
    """At the size that the rule allows, nearly every draw has every token on its side."""
    names = Vocabulary(24, 24, 48, 4)
    dim = 512
    size = largest_separable_block(dim, names)
    assert size >= 3
    blocks = consecutive_blocks(names, size)

    def margin(key):
        tokens = sphere(key, names.prompt_tokens, dim)
        return tokens @ superposed_key(tokens, blocks).T

    found = [denoiser_margins(s, blocks).min() for s in map(margin, jr.split(jr.key(0), 10))]
    assert np.mean(np.array(found) > 0) >= 0.8
    assert largest_separable_block(2, names) == 1
