"""Figures 4 (left), 7, 8 and 9, with capacities that follow known laws."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.paper.stand_ins import column, draw, run_all, train_by_law, trained_capacity

from factmem.paper import figure_4_left, figure_7, figure_8, figure_9, get_figure
from factmem.paper import transformer_figures as figures
from factmem.paper.transformer_figures import QUICK_RATIO, TransformerLine

GRIDS = {
    "4-left": figure_4_left.GRID,
    "7": figure_7.GRID,
    "8": figure_8.GRID,
    "9": figure_9.GRID,
}
RATIOS = st.sampled_from([4.0, 2.0, 1.0, 0.5, 0.25])
HEADS = st.sampled_from([1, 4, 8, 16])


# ---- lines ---------------------------------------------------------------------------------------


@given(RATIOS, RATIOS, HEADS, st.integers(1, 300))
def test_head_dim_and_width_are_rounded_down(attention, mlp, heads, dim):
    problem = TransformerLine(attention, mlp, heads).problem(dim, "paper")
    head_dim = Fraction(attention) * dim // heads
    width = Fraction(mlp) * dim // 1
    if head_dim == 0 or width == 0:
        assert problem is None
    else:
        assert (problem.shape.dim, problem.shape.heads) == (dim, heads)
        assert (problem.shape.head_dim, problem.shape.width) == (head_dim, width)


@given(RATIOS, RATIOS, HEADS, st.integers(1, 4))
def test_parameters_without_rounding(attention, mlp, heads, factor):
    dim = 64 * factor  # a multiple of 4·16
    problem = TransformerLine(attention, mlp, heads).problem(dim, "paper")
    assert problem.parameters == (4 * attention + 2 * mlp) * dim**2


def test_small_shape_computed_by_hand():
    # d_h = ⌊12/8⌋ = 1 and m = ⌊3⌋ = 3: 4·8·12·1 + 2·3·12
    problem = TransformerLine(1.0, 0.25).problem(12, "quick", 1.3)
    assert (problem.shape.head_dim, problem.shape.width, problem.parameters) == (1, 3, 456)
    assert (problem.protocol, problem.criterion, problem.ratio) == ("quick", 0.99, 1.3)
    assert TransformerLine(1.0, 0.25).problem(12, "compiled").criterion == 1.0


def test_answers_grow_only_with_the_scaling_d_s_r():
    for scaling, size, expected in (
        ("s=r", 9, (9, 9, 8)),
        ("s=r2", 9, (9, 3, 8)),
        ("d=s=r", 9, (9, 9, 9)),
    ):
        problem = TransformerLine(1.0, 1.0, scaling=scaling).problem(16, "quick")
        assert problem.table_sizes(size) == expected


def test_problems_skip_sizes_without_a_shape():
    line = TransformerLine(0.25, 1.0)
    assert [problem.dim for problem in line.problems((8, 31, 32, 64), "paper")] == [32, 64]


@pytest.mark.parametrize("name", GRIDS)
def test_quick_grids_have_enough_sizes_over_a_wide_range(name):
    grid = GRIDS[name]
    problems = grid.quick.problems(grid.quick_dims, "quick", QUICK_RATIO)
    assert len({problem.parameters for problem in problems}) == len(grid.quick_dims)
    # At d = 8 embeddings are the limit: the others carry the law.
    others = {problem.parameters for problem in problems if problem.dim > 8}
    assert len(others) >= 4
    assert max(others) >= 8 * min(others)


@pytest.mark.parametrize(
    ("name", "heads", "scaling"),
    [("4-left", 8, "s=r"), ("7", 16, "s=r"), ("8", 16, "s=r2"), ("9", 8, "d=s=r")],
)
def test_paper_grids_have_the_authors_25_shapes(name, heads, scaling):
    lines = GRIDS[name].paper
    assert {(line.heads, line.scaling) for line in lines} == {(heads, scaling)}
    ratios = {(line.attention, line.mlp) for line in lines}
    powers = [Fraction(4, 2**step) for step in range(5)]
    assert ratios == {(a, b) for a in powers for b in powers}
    assert len(lines) == 25


# ---- figures -------------------------------------------------------------------------------------


def trained_parts(name, scale):
    parts = get_figure(name, scale).measurement.parts
    return {line: part for line, part in parts.items() if not line.startswith("compiled")}


@pytest.fixture(autouse=True)
def two_seeds(monkeypatch):
    monkeypatch.setattr(figures, "QUICK_SEEDS", (0, 1))


@pytest.mark.parametrize("exponent", [1.0, 1.4])
def test_law_holds_only_if_facts_are_proportional_to_parameters(monkeypatch, exponent):
    train_by_law(monkeypatch, exponent)
    plot = draw(get_figure("7"))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(exponent, abs=0.1)
    assert slope.holds is (exponent == 1)
    assert ("The law does not hold here" in plot.caption) is (exponent != 1)
    (chart,) = plot.panels
    assert chart.lines[0].x == tuple(6.0 * dim**2 for dim in (12, 16, 24, 36))
    assert column(plot, "seed") == [0, 1] * 4
    assert set(column(plot, "heads")) == {4}
    assert column(plot, "width")[::2] == [12, 16, 24, 36]
    names = ("facts", "facts_not_stored", "parameters", "seed")
    for row in zip(*(column(plot, name) for name in names), strict=True):
        stored, not_stored, parameters, seed = row
        assert stored <= (1 + seed / 50) * trained_capacity(parameters, exponent) < not_stored


def test_authors_line_has_015_facts_per_parameter():
    reference = figures._REFERENCE
    assert reference.kind == "reference"
    for parameters, facts in zip(reference.x, reference.y, strict=True):
        assert facts == pytest.approx(0.15 * parameters)


def test_only_figure_4_has_compiled_transformers(monkeypatch):
    compiled_lines = {
        name: set(get_figure(name).measurement.parts) - set(trained_parts(name, "quick"))
        for name in GRIDS
    }
    assert compiled_lines == {
        "4-left": {"compiled, 100% certified"},
        "7": set(),
        "8": set(),
        "9": set(),
    }
    train_by_law(monkeypatch, limited=(8,))
    plot = draw(get_figure("4-left"))
    compiled = [row for row in plot.data.rows if row[0].startswith("compiled")]
    assert [row[1] for row in compiled] == [12, 16]
    assert {row[plot.data.header.index("criterion")] for row in compiled} == {1.0}
    first, second = plot.slopes
    assert second.name == f"{first.name}, sizes that embeddings do not limit"
    assert "compiled" not in first.name, "two points have no slope"
    reference = plot.panels[0].lines[-1]
    assert reference.name == figures._REFERENCE.name
    assert reference.y == pytest.approx([0.15 * x for x in reference.x])
    # From 384 to 6,144 parameters, extended by a factor of 1.5.
    assert (reference.x[0], reference.x[-1]) == pytest.approx((800, 1.5 * 6144))


@pytest.mark.parametrize("name", GRIDS)
def test_paper_figures_leave_out_only_the_largest_shapes(name):
    parts = trained_parts(name, "paper")
    assert len(parts) == 25
    authors = (8, 11, 16, 22, 32, 45, 64, 90, 128, 181)
    for line, (label, part) in zip(GRIDS[name].paper, parts.items(), strict=True):
        assert label == f"α = {line.attention:g}, β = {line.mlp:g}"
        assert list(part.searches.seeds) == [64]
        dims = [problem.dim for problem in part.searches.problems]
        possible = [dim for dim in authors if line.problem(dim, "paper") is not None]
        assert dims == possible[: len(dims)]
        assert all(problem.expected_facts <= 11_000 for problem in part.searches.problems)
        left_out = [line.problem(dim, "paper") for dim in possible[len(dims) :]]
        assert all(problem.expected_facts > 11_000 for problem in left_out)
        assert {problem.protocol for problem in part.searches.problems} == {"paper"}


TABLES = {"4-left": "S = R and D = 8", "8": "S = R² and D = 8", "9": "D = S = R"}


@pytest.mark.parametrize("name", TABLES)
def test_captions_name_the_tables_and_our_allocation(monkeypatch, name):
    train_by_law(monkeypatch)
    caption = draw(get_figure(name)).caption
    assert f"random tables of {TABLES[name]}," in caption
    assert ("our own allocation" in caption) is (name != "4-left")
    sizes = "8, 12, 16, 24, 32" if name == "4-left" else "12, 16, 24, 32"
    assert f"Transformers of d = {sizes} " in caption


@pytest.mark.parametrize("name", ["4-left", "8"])
def test_small_shapes_come_first_on_all_lines_at_paper_scale(monkeypatch, name):
    """So an interrupted figure has the left part of every line."""
    train_by_law(monkeypatch)
    measurement = get_figure(name, "paper").measurement
    first, *others = trained_parts(name, "paper").values()
    smallest = first.searches.problems[0].dim
    known = {i: r for i, r in run_all(first).items() if r.config["dim"] == smallest}
    dims = [task.config["dim"] for task in measurement.pending(known).needed]
    assert dims == sorted(dims)
    waiting = sum(part.searches.problems[0].dim == smallest for part in others)
    assert dims.count(smallest) >= waiting > 1, "every other line starts with its smallest"
    assert max(dims) > smallest, "then the first line continues with its next size"
