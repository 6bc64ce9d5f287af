"""Keys of the compiler: nearest and widest keys match other solvers; the chosen keys separate."""

import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution
from factmem.transformer import EXPERIMENT_CONVENTION, Embeddings
from factmem.transformer.compiler.keys import (
    _center_in_cell,
    _repair,
    choose_keys,
    draw_keys,
    nearest_key,
    widest_key,
)
from factmem.transformer.constructions.denoiser import tokens_read

PROMPTS = PromptDistribution.from_table(FactTable.random(10, 8, 4, seed=1))


def tokens_of(dim, seed=0, prompts=PROMPTS):
    phi = Embeddings.draw(dim, prompts.vocabulary, EXPERIMENT_CONVENTION, key=jr.key(seed))
    return np.asarray(phi.tokens, float)


@given(st.integers(0, 10**6), st.sampled_from([3, 8, 14]))
def test_nearest_key_matches_another_solver(seed, count):
    rng = np.random.default_rng(seed)
    rows, target = rng.normal(size=(count, 4)), 3 * rng.normal(size=4)
    feasible = linprog(np.zeros(4), A_ub=-rows, b_ub=-np.ones(count), bounds=(None, None))
    key = nearest_key(target, rows)
    assert (key is not None) == (feasible.status == 0)
    if key is None:
        return
    assert (rows @ key >= 1 - 1e-6).all()
    other = minimize(
        lambda k: np.sum((k - target) ** 2),
        feasible.x,
        constraints={"type": "ineq", "fun": lambda k: rows @ k - 1, "jac": lambda k: rows},
        jac=lambda k: 2 * (k - target),
        method="SLSQP",
    )
    assert np.linalg.norm(key - target) <= np.linalg.norm(other.x - target) * (1 + 1e-5) + 1e-6


@given(st.integers(0, 10**6))
def test_no_direction_has_a_larger_margin_than_the_widest_key(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, 4))
    widest = widest_key(rows)
    directions = rng.normal(size=(500, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    best = (directions @ rows.T).min(axis=1).max()
    if widest is None:
        assert best <= 0
        return
    key, margin = widest
    assert np.linalg.norm(key) == pytest.approx(1.0)
    assert (rows @ key).min() == pytest.approx(margin)
    assert margin >= best - 1e-9


def test_opposite_rows_have_no_widest_key():
    assert widest_key(np.array([[1.0, 0.0], [-1.0, 0.0]])) is None


@pytest.mark.parametrize(("dim", "heads"), [(10, 10), (24, 4)])
def test_keys_score_noise_below_eos_and_distinguish_facts(dim, heads):
    tokens = tokens_of(dim)
    keys = choose_keys(tokens, PROMPTS, heads, rng=np.random.default_rng(0))
    assert keys.shape == (heads, dim)
    scores = tokens @ keys.T
    vocabulary = PROMPTS.vocabulary
    assert (scores[vocabulary.first_noise : vocabulary.eos] < scores[-1]).all()
    read = tokens_read(scores, PROMPTS.known_tokens())
    assert len(np.unique(read, axis=0)) == PROMPTS.facts


def test_center_of_a_cell_reads_the_same_tokens_with_a_larger_gap():
    tokens = tokens_of(10)
    vocabulary, known = PROMPTS.vocabulary, PROMPTS.known_tokens()
    rng = np.random.default_rng(1)
    noise = tokens[vocabulary.first_noise : vocabulary.eos] - tokens[-1]
    for _ in range(10):
        key = nearest_key(30 * rng.normal(size=10), -noise)
        key /= np.linalg.norm(key)
        center = _center_in_cell(key, tokens, PROMPTS)
        before, after = (tokens_read((tokens @ k)[:, None], known) for k in (key, center))
        assert (before == after).all()
        assert np.linalg.norm(center) == pytest.approx(1.0)
        gaps = [
            np.sort(np.abs((tokens[: vocabulary.first_noise] - tokens[-1]) @ k))[0]
            for k in (key, center)
        ]
        assert gaps[1] >= min(gaps[0], 1e-4)


def test_repair_adds_a_candidate_that_distinguishes_confused_facts():
    """Candidates 0 and 1 read subjects only, so they confuse the facts of one subject."""
    rng = np.random.default_rng(0)
    known = PROMPTS.known_tokens()
    read = np.stack([known[:, 0], known[:, 0], known[:, 1]], axis=1)
    assert _repair(read, [0, 2], PROMPTS, rng=rng) == [0, 2]
    repaired = _repair(read, [0, 1], PROMPTS, rng=rng)
    assert repaired is not None
    assert 2 in repaired
    assert _repair(read[:, :2], [0, 1], PROMPTS, rng=rng) is None


def test_keys_for_a_partial_table():
    grid = np.full((4, 3), MISSING)
    grid[0, 0], grid[1, 2], grid[3, 1] = 0, 1, 2
    prompts = PromptDistribution.from_table(FactTable(grid))
    tokens = tokens_of(8, prompts=prompts)
    keys = choose_keys(tokens, prompts, 3, rng=np.random.default_rng(0))
    assert len(np.unique(tokens_read(tokens @ keys.T, prompts.known_tokens()), axis=0)) == 3


def test_rejects_noise_or_facts_that_cannot_be_separated():
    vocabulary = PROMPTS.vocabulary
    surrounded = tokens_of(4)
    surrounded[-1] = surrounded[vocabulary.first_noise : vocabulary.eos].mean(axis=0)
    with pytest.raises(FactmemError, match="no head can ignore the noise: with dim = 4 no key"):
        choose_keys(surrounded, PROMPTS, 4, rng=np.random.default_rng(0))
    with pytest.raises(FactmemError, match="no choice of 1 key distinguishes"):
        choose_keys(tokens_of(16), PROMPTS, 1, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("dim", "heads", "noise"), [(16, 16, 18), (16, 24, 60), (32, 16, 18)])
def test_drawn_keys_score_noise_below_eos_and_cover_all_tokens(dim, heads, noise):
    prompts = PromptDistribution.from_table(FactTable.random(10, 8, 4, seed=1), noise=noise)
    tokens = tokens_of(dim, prompts=prompts)
    keys = draw_keys(tokens, prompts, heads, rng=np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1.0)
    scores = tokens @ keys.T
    vocabulary = prompts.vocabulary
    assert (scores[vocabulary.first_noise : vocabulary.eos] < scores[-1]).all()
    covered = (scores[: vocabulary.first_noise] > scores[-1]).sum(axis=1)
    assert covered.min() >= 1
    assert np.median(covered) >= heads / 8


def test_drawn_keys_reject_noise_around_eos():
    vocabulary = PROMPTS.vocabulary
    surrounded = tokens_of(4)
    surrounded[-1] = surrounded[vocabulary.first_noise : vocabulary.eos].mean(axis=0)
    with pytest.raises(FactmemError, match="no head can ignore the noise: with dim = 4 no key"):
        draw_keys(surrounded, PROMPTS, 4, rng=np.random.default_rng(0))
