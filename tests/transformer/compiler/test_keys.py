"""Keys of the compiler: nearest and widest ones against other solvers, and what is chosen."""

import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution
from factmem.transformer import EXPERIMENTS, Embeddings
from factmem.transformer.compiler.keys import (
    _all_different,
    _centerd,
    choose_keys,
    nearest_key,
    widest_key,
)
from factmem.transformer.constructions.denoiser import tokens_read

ASKED = PromptDistribution.of(FactTable.random(10, 8, 4, seed=1))


def tokens_of(dim, seed=0, asked=ASKED):
    phi = Embeddings.draw(jr.key(seed), dim, asked.vocabulary, EXPERIMENTS)
    return np.asarray(phi.tokens, float)


@given(st.integers(0, 10**6), st.sampled_from([3, 8, 14]))
def test_the_nearest_key_is_that_of_another_solver(seed, count):
    rng = np.random.default_rng(seed)
    rows, wish = rng.normal(size=(count, 4)), 3 * rng.normal(size=4)
    possible = linprog(np.zeros(4), A_ub=-rows, b_ub=-np.ones(count), bounds=(None, None))
    key = nearest_key(wish, rows)
    assert (key is not None) == (possible.status == 0)
    if key is None:
        return
    assert (rows @ key >= 1 - 1e-6).all()
    other = minimize(
        lambda k: np.sum((k - wish) ** 2),
        possible.x,
        constraints={"type": "ineq", "fun": lambda k: rows @ k - 1, "jac": lambda k: rows},
        jac=lambda k: 2 * (k - wish),
        method="SLSQP",
    )
    assert np.linalg.norm(key - wish) <= np.linalg.norm(other.x - wish) * (1 + 1e-5) + 1e-6


@given(st.integers(0, 10**6))
def test_no_direction_has_a_larger_margin_than_the_widest(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, 4))
    found = widest_key(rows)
    directions = rng.normal(size=(500, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    best = (directions @ rows.T).min(axis=1).max()
    if found is None:
        assert best <= 0
        return
    key, margin = found
    assert np.linalg.norm(key) == pytest.approx(1.0)
    assert (rows @ key).min() == pytest.approx(margin)
    assert margin >= best - 1e-9


def test_opposite_rows_have_no_key():
    assert widest_key(np.array([[1.0, 0.0], [-1.0, 0.0]])) is None


@pytest.mark.parametrize(("dim", "heads"), [(10, 10), (24, 4)])
def test_noise_is_below_eos_and_facts_are_told_apart(dim, heads):
    tokens = tokens_of(dim)
    keys = choose_keys(np.random.default_rng(0), tokens, ASKED, heads)
    assert keys.shape == (heads, dim)
    scores = tokens @ keys.T
    names = ASKED.vocabulary
    assert (scores[names.first_noise : names.eos] < scores[-1]).all()
    read = tokens_read(scores, ASKED.known_tokens())
    assert len(np.unique(read, axis=0)) == ASKED.facts


def test_the_middle_of_a_cell_reads_the_same_with_more_margin():
    tokens = tokens_of(10)
    names, known = ASKED.vocabulary, ASKED.known_tokens()
    rng = np.random.default_rng(1)
    noise = tokens[names.first_noise : names.eos] - tokens[-1]
    for _ in range(10):
        key = nearest_key(30 * rng.normal(size=10), -noise)
        key /= np.linalg.norm(key)
        middle = _centerd(key, tokens, ASKED)
        before, after = (tokens_read((tokens @ k)[:, None], known) for k in (key, middle))
        assert (before == after).all()
        assert np.linalg.norm(middle) == pytest.approx(1.0)
        gaps = [
            np.sort(np.abs((tokens[: names.first_noise] - tokens[-1]) @ k))[0]
            for k in (key, middle)
        ]
        assert gaps[1] >= min(gaps[0], 1e-4)


def test_facts_that_share_everything_but_their_answer():
    """One candidate reads subjects alone: facts of one subject are alike, and a second helps."""
    rng = np.random.default_rng(0)
    known = ASKED.known_tokens()
    read = np.stack([known[:, 0], known[:, 0], known[:, 1]], axis=1)
    assert _all_different(rng, read, [0, 2], ASKED) == [0, 2]
    repaired = _all_different(rng, read, [0, 1], ASKED)
    assert repaired is not None
    assert 2 in repaired
    assert _all_different(rng, read[:, :2], [0, 1], ASKED) is None


def test_partial_tables_and_single_facts():
    grid = np.full((4, 3), MISSING)
    grid[0, 0], grid[1, 2], grid[3, 1] = 0, 1, 2
    asked = PromptDistribution.of(FactTable(grid))
    tokens = tokens_of(8, asked=asked)
    keys = choose_keys(np.random.default_rng(0), tokens, asked, 3)
    assert len(np.unique(tokens_read(tokens @ keys.T, asked.known_tokens()), axis=0)) == 3


def test_what_cannot_be_separated_is_said():
    names = ASKED.vocabulary
    surrounded = tokens_of(4)
    surrounded[-1] = surrounded[names.first_noise : names.eos].mean(axis=0)
    with pytest.raises(FactmemError, match="no head can ignore the noise: in d = 4 dimensions"):
        choose_keys(np.random.default_rng(0), surrounded, ASKED, 4)
    with pytest.raises(FactmemError, match="each choice of 1 keys"):
        choose_keys(np.random.default_rng(0), tokens_of(16), ASKED, 1)
