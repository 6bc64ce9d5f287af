"""Figures 4 (left), 7, 8 and 9, drawn of laws that are known."""

import pytest
from tests.paper.made import column, drawn, known_of, trained_by_law, trained_facts

from factmem.paper import figure_named
from factmem.paper import transformer_figures as transformer_lines
from factmem.paper.transformer_lines import PAPER_LINES

NAMES = ("4-left", "7", "8", "9")


def trained(name, scale):
    parts = figure_named(name, scale).measured.parts
    return {line: part for line, part in parts.items() if not line.startswith("compiled")}


@pytest.fixture(autouse=True)
def two_seeds(monkeypatch):
    monkeypatch.setattr(transformer_lines, "QUICK_SEEDS", (0, 1))


@pytest.mark.parametrize("exponent", [1.0, 1.4])
def test_facts_in_proportion_to_parameters_hold_and_others_fail(monkeypatch, exponent):
    trained_by_law(monkeypatch, exponent)
    plot = drawn(figure_named("7"))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(exponent, abs=0.1)
    assert slope.holds is (exponent == 1)
    assert ("The law does not hold here" in plot.caption) is (exponent != 1)
    (chart,) = plot.panels
    assert chart.lines[0].x == tuple(6.0 * dim**2 for dim in (12, 16, 24, 36))
    assert column(plot, "seed") == [0, 1] * 4
    names = ("facts", "facts_not_stored", "parameters", "seed")
    for row in zip(*(column(plot, name) for name in names), strict=True):
        stored, not_stored, parameters, seed = row
        assert stored <= (1 + seed / 50) * trained_facts(parameters, exponent) < not_stored


def test_the_authors_line_is_015_facts_a_parameter():
    reference = transformer_lines._REFERENCE
    assert reference.kind == "reference"
    for parameters, facts in zip(reference.x, reference.y, strict=True):
        assert facts == pytest.approx(0.15 * parameters)


def test_only_figure_4_has_compiled_transformers_beside_the_trained(monkeypatch):
    beside = {name: set(figure_named(name).measured.parts) - set(trained(name, "quick"))
              for name in NAMES}  # fmt: skip
    assert beside == {"4-left": {"compiled, 100 % certified"}, "7": set(), "8": set(), "9": set()}
    trained_by_law(monkeypatch, limited=(8,))
    plot = drawn(figure_named("4-left"))
    compiled = [row for row in plot.data.rows if row[0].startswith("compiled")]
    assert [row[1] for row in compiled] == [12, 16]
    assert {row[plot.data.header.index("criterion")] for row in compiled} == {1.0}
    first, second = plot.slopes
    assert second.name == f"{first.name}, sizes that embeddings do not limit"
    assert "compiled" not in first.name, "three points make no slope"
    reference = plot.panels[0].lines[-1]
    assert reference.name == transformer_lines._REFERENCE.name
    assert reference.y == pytest.approx([0.15 * x for x in reference.x])
    # From 384 parameters to 6,144, and no further than half as far again.
    assert (reference.x[0], reference.x[-1]) == pytest.approx((800, 1.5 * 6144))


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_has_all_shapes_that_its_picture_has_room_for(name):
    lines = trained(name, "paper")
    assert len(lines) == 25
    authors = (8, 11, 16, 22, 32, 45, 64, 90, 128, 181)
    for line, (told, part) in zip(PAPER_LINES[name], lines.items(), strict=True):
        assert told == f"α = {line.attention:g}, β = {line.mlp:g}"
        assert list(part.searches.seeds) == [64]
        dims = [question.dim for question in part.searches.problems]
        shaped = [dim for dim in authors if line.problem(dim, "paper") is not None]
        assert dims == shaped[: len(dims)], "what is left out is the largest"
        assert all(question.expected <= 11_000 for question in part.searches.problems)
        left_out = [line.problem(dim, "paper") for dim in shaped[len(dims) :]]
        assert all(question.expected > 11_000 for question in left_out)
        assert {question.protocol for question in part.searches.problems} == {"paper"}


TABLES = {"4-left": "S = R and D = 8", "8": "S = R² and D = 8", "9": "D = S = R"}


@pytest.mark.parametrize("name", TABLES)
def test_captions_say_which_tables_there_are_and_what_is_our_own_guess(monkeypatch, name):
    trained_by_law(monkeypatch)
    caption = drawn(figure_named(name)).caption
    assert f"random tables of {TABLES[name]}," in caption
    assert ("our own allocation" in caption) is (name != "4-left")
    sizes = "8, 12, 16, 24, 32" if name == "4-left" else "12, 16, 24, 32"
    assert f"Transformers of d = {sizes} " in caption


@pytest.mark.parametrize("name", ["4-left", "8"])
def test_at_paper_scale_small_shapes_come_first_on_all_lines(monkeypatch, name):
    """So that an interrupted figure has the left part of every line."""
    trained_by_law(monkeypatch)
    measured = figure_named(name, "paper").measured
    first, *others = trained(name, "paper").values()
    smallest = first.searches.problems[0].dim
    known = {i: r for i, r in known_of(first).items() if r.config["dim"] == smallest}
    dims = [task.config["dim"] for task in measured.pending(known).needed]
    assert dims == sorted(dims)
    waiting = sum(part.searches.problems[0].dim == smallest for part in others)
    assert dims.count(smallest) >= waiting > 1, "every other line has its smallest first"
    assert max(dims) > smallest, "the first line goes on to its next, after them"
