"""Shapes that grow alike: how they are rounded, and which there are."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem.paper.transformer_lines import (
    PAPER_LINES,
    QUICK_DIMS,
    QUICK_LINES,
    QUICK_RATIO,
    TransformerLine,
)

SHARES = st.sampled_from([4.0, 2.0, 1.0, 0.5, 0.25])
HEADS = st.sampled_from([1, 4, 8, 16])


@given(SHARES, SHARES, HEADS, st.integers(1, 300))
def test_head_and_mlp_dimensions_are_rounded_down(attention, mlp, heads, dim):
    question = TransformerLine(attention, mlp, heads).problem(dim, "paper")
    head_dim = Fraction(attention) * dim // heads
    width = Fraction(mlp) * dim // 1
    if head_dim == 0 or width == 0:
        assert question is None
    else:
        assert (question.dim, question.heads) == (dim, heads)
        assert (question.head_dim, question.width) == (head_dim, width)


@given(SHARES, SHARES, HEADS, st.integers(1, 4))
def test_parameters_are_those_of_the_shares_where_nothing_is_rounded(attention, mlp, heads, times):
    dim = 64 * times  # 4·16 divides it
    question = TransformerLine(attention, mlp, heads).problem(dim, "paper")
    assert question.parameters == (4 * attention + 2 * mlp) * dim**2


def test_a_small_shape_worked_by_hand():
    # d_h = ⌊12/8⌋ = 1 and m = ⌊3⌋ = 3: 4·8·12·1 + 2·3·12
    question = TransformerLine(1.0, 0.25).problem(12, "quick", 1.3)
    assert (question.head_dim, question.width, question.parameters) == (1, 3, 456)
    assert (question.protocol, question.criterion, question.ratio) == ("quick", 0.99, 1.3)
    assert TransformerLine(1.0, 0.25).problem(12, "compiled").criterion == 1.0


def test_answers_grow_only_where_the_scaling_says_so():
    for scaling, size, expected in (
        ("s=r", 9, (9, 9, 8)),
        ("s=r2", 9, (9, 3, 8)),
        ("d=s=r", 9, (9, 9, 9)),
    ):
        question = TransformerLine(1.0, 1.0, scaling=scaling).problem(16, "quick")
        assert question.sizes(size) == expected


def test_questions_leave_out_what_has_no_shape():
    line = TransformerLine(0.25, 1.0)
    assert [question.dim for question in line.problems((8, 31, 32, 64), "paper")] == [32, 64]


@pytest.mark.parametrize("name", QUICK_LINES)
def test_quick_lines_have_enough_sizes_over_a_wide_enough_range(name):
    questions = QUICK_LINES[name].problems(QUICK_DIMS[name], "quick", QUICK_RATIO)
    sizes = {question.parameters for question in questions}
    assert len(sizes) == len(QUICK_DIMS[name])
    # At d = 8 embeddings are the limit: the others carry the law.
    others = {question.parameters for question in questions if question.dim > 8}
    assert len(others) >= 4
    assert max(others) >= 8 * min(others)


@pytest.mark.parametrize(
    ("name", "heads", "scaling"),
    [("4-left", 8, "s=r"), ("7", 16, "s=r"), ("8", 16, "s=r2"), ("9", 8, "d=s=r")],
)
def test_the_authors_have_all_25_shapes(name, heads, scaling):
    lines = PAPER_LINES[name]
    assert {(line.heads, line.scaling) for line in lines} == {(heads, scaling)}
    shares = {(line.attention, line.mlp) for line in lines}
    powers = [Fraction(4, 2**step) for step in range(5)]
    assert shares == {(a, b) for a in powers for b in powers}
    assert len(lines) == 25
