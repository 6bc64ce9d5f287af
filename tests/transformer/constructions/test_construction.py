"""Answer sets, ambiguous facts and memory of the constructions, at real sizes too."""

import subprocess
import sys
import tracemalloc

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.facts import MISSING, FactTable, PromptDistribution, Vocabulary
from factmem.transformer import (
    Embeddings,
    Shape,
    Transformer,
    ambiguous_facts,
    attention_construction,
    mlp_construction,
)
from factmem.transformer.constructions import construction
from factmem.transformer.constructions.attention_only import memory_variance
from factmem.transformer.constructions.construction import (
    answer_sets,
    check_memory,
    denoiser_margin,
    score_blocks,
)


def partial_table(seed, subjects=6, relations=4, answers=5):
    rng = np.random.default_rng(seed)
    grid = rng.integers(answers, size=(subjects, relations))
    grid[rng.random(grid.shape) < 0.3] = MISSING
    grid[0, 0] = 0
    return FactTable(grid)


@given(st.integers(0, 10**6))
def test_answer_sets_match_loops(seed):
    table = partial_table(seed)
    expected = np.zeros((table.subjects + table.relations, table.answers))
    for s, r, a in zip(*table.fact_ids, strict=True):
        expected[s, a] = expected[table.subjects + r, a] = 1
    sets = answer_sets(table)
    np.testing.assert_array_equal(sets.toarray(), expected)
    assert sets.nnz == expected.sum()


@given(st.integers(0, 10**6), st.sampled_from([1, 9, 2**22]))
def test_ambiguous_facts_match_sets(seed, entries):
    table = partial_table(seed)
    grid = table.answer_of
    of_subject = [set(line[line != MISSING]) for line in grid]
    of_relation = [set(line[line != MISSING]) for line in grid.T]
    subjects, relations, _ = table.fact_ids
    expected = sum(
        len(of_subject[s] & of_relation[r]) > 1 for s, r in zip(subjects, relations, strict=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(construction, "_MAX_COMMON", entries)
        assert ambiguous_facts(table) == expected


@given(st.integers(0, 10**6))
def test_memory_variance_uses_the_mean_number_of_answers_of_a_subject(seed):
    """With one token per block only the subject's other answers disturb."""
    table = partial_table(seed)
    answers = np.mean([len(set(line[line != MISSING])) for line in table.answer_of])
    expected = (1 + (answers - 1) / 16) * (1 + 2 / 8) - 1
    assert memory_variance(table, 16, 8, 1) == pytest.approx(expected)


@pytest.mark.parametrize("entries", [1, 30, 2**24])
def test_scores_of_some_heads_at_a_time(monkeypatch, entries):
    monkeypatch.setattr(construction, "_MAX_SCORES", entries)
    vocabulary = Vocabulary(4, 3, 5, 2)
    model = Transformer.draw(Shape(6, 5, 3), vocabulary, key=jr.key(0))
    blocks = np.random.default_rng(0).random((5, vocabulary.prompt_tokens)) < 0.3
    scores = np.asarray(model.scores(), float)
    parts = [np.asarray(part) for _, part in score_blocks(model)]
    assert len(parts) == {1: 5, 30: 3, 2**24: 1}[entries]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), scores, rtol=1e-5, atol=1e-6)
    gaps = (scores - scores[-1])[:-1]
    expected = np.where(blocks[:, :-1].T, gaps, -gaps).min() / 3
    assert denoiser_margin(model, blocks, 3.0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("construct", [attention_construction, mlp_construction])
def test_rejects_heads_that_do_not_fit_into_memory(construct):
    prompts = PromptDistribution.from_table(FactTable(np.arange(9000)[:, None] % 4))
    tokens = jnp.ones((prompts.vocabulary.size, 256))
    sizes = (256,) if construct is attention_construction else (256, 16)
    with pytest.raises(FactmemError, match=r"heads with .* weights need about .* GiB of memory"):
        construct(prompts, Embeddings(tokens, None), *sizes, key=jr.key(0), block_size=1)


def test_memory_is_checked_by_blocks_and_weights():
    shape = Shape(64, 2, 64, 8)  # 33,792 weights
    check_memory(shape, Vocabulary(2**30, 1, 1, 1))
    with pytest.raises(FactmemError, match=r"2 heads with 33,792 weights need about 4\.0 GiB"):
        check_memory(shape, Vocabulary(2**31, 1, 1, 1))


def test_memory_of_answer_sets_does_not_grow_with_subjects_times_answers():
    table = FactTable(np.arange(20_000).reshape(10_000, 2))
    tracemalloc.start()
    try:
        assert ambiguous_facts(table) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < table.subjects * table.answers * 4 / 20


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize("method", ["attention_construction", "mlp_construction"])
def test_memory_does_not_grow_with_tokens_times_answers(method):
    """10,000 subjects with 20,000 answers: a dense table of both would have 800 MB."""
    sizes = "4" if method == "attention_construction" else "4, 8"
    script = f"""
import resource
import jax.random as jr
import numpy as np
from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import THEORY_CONVENTION, Embeddings, {method}
def construct(subjects):
    prompts = PromptDistribution.from_table(FactTable(np.arange(2 * subjects).reshape(-1, 2)))
    phi = Embeddings.draw(8, prompts.vocabulary, THEORY_CONVENTION, key=jr.key(0))
    {method}(prompts, phi, {sizes}, key=jr.key(1), block_size=200)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
few, many = construct(100), construct(10_000)
print(many - few)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 1024 * int(run.stdout) < 10_000 * 20_000 * 4 / 2
