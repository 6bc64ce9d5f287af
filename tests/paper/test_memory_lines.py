"""Sizes, seeds and dashed lines of the figures of memories."""

import math
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.paper.here import by_information, searched, without_logarithm
from tests.paper.made import drawn

from factmem.paper import figure_1_left, figure_named
from factmem.paper.memory_lines import dashed, half_powers, law, matrix_lines, mlp_lines

FIGURES = ("1-left", "1-right", "6")


def test_sizes_are_powers_of_two_in_steps_of_a_half():
    assert half_powers(3, 7.5) == (8, 11, 16, 22, 32, 45, 64, 90, 128, 181)
    assert half_powers(3, 3) == (8,)
    assert half_powers(3, 4.0) == (8, 11, 16)


def reference(name, monkeypatch):
    """The authors' line of a figure, without measuring anything."""
    module, given = import_module(f"factmem.paper.figure_{name.replace('-', '_')}"), {}
    make = module.stored_facts_figure

    def seen(*arguments, **named):
        given.update(named)
        return make(*arguments, **named)

    monkeypatch.setattr(module, "stored_facts_figure", seen)
    figure_named(name)
    assert given["reference"].kind == "reference"
    return given["reference"]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("1-left", lambda n: 1.3 * n * math.log(n)),
        ("1-right", lambda n: 0.35 * n * math.log(n)),
        ("6", lambda n: 1.2 * n),
    ],
)
def test_the_authors_lines_are_what_they_are_called(monkeypatch, name, size):
    line = reference(name, monkeypatch)
    for x, facts in zip(line.x, line.y, strict=True):
        assert x == pytest.approx(size(facts), rel=1e-9)
    assert list(line.x) == sorted(line.x)
    assert line.y[-1] > 100 * line.y[0]


@given(st.sampled_from([(20, 6000), (1.5, 3.0)]), st.floats(0.1, 10), st.booleans())
def test_a_dashed_line_reaches_from_end_to_end(ends, factor, logarithm):
    line = dashed("it", ends, factor, logarithm=logarithm)
    assert (line.y[0], line.y[-1]) == (pytest.approx(ends[0]), pytest.approx(ends[1]))
    for x, n in zip(line.x, line.y, strict=True):
        assert x == pytest.approx(factor * n * (math.log(n) if logarithm else 1))


def test_laws_have_a_logarithm_where_they_say_so():
    assert law("N ln N", "d²").value(100.0) == pytest.approx(100 * math.log(100))
    assert law("N", "m·d").value(100.0) == 100
    assert law("N ln N", "d²").told == "N ln N ∝ (d²)^slope"
    assert law("N ln N", "d²").value(1.0) == 0


@given(st.sampled_from(["N ln N", "N"]), st.floats(2, 1e6))
def test_facts_are_what_has_the_value_of_a_law(of, facts):
    found = law(of, "d²")
    assert found.facts(found.value(facts)) == pytest.approx(facts)


def test_matrices_are_trained_to_99_percent_and_proved_for_all():
    trained, best = matrix_lines((8, 16), (8,), (0, 1), "paper")
    assert [(q.dim, q.method, q.criterion, q.ratio) for q in trained.problems] == [
        (8, "trained", 0.99, 1.01),
        (16, "trained", 0.99, 1.01),
    ]
    assert [(q.dim, q.method, q.criterion) for q in best.problems] == [(8, "maximal", 1.0)]
    assert (trained.counts, best.counts) == (True, False)


@pytest.mark.parametrize(("scale", "method"), [("quick", "quick"), ("paper", "trained")])
def test_mlps_have_a_line_for_each_width_and_one_that_is_fitted(scale, method):
    first, fourth, fitted = mlp_lines((1, 4), (8, 16), ((8, 24),), 32, (0,), scale)
    assert [(q.dim, q.width, q.outputs) for q in first.problems] == [(8, 8, 32), (16, 16, 32)]
    assert [(q.dim, q.width) for q in fourth.problems] == [(8, 32), (16, 64)]
    assert {(q.method, q.criterion) for q in first.problems} == {(method, 0.99)}
    assert [(q.method, q.width, q.criterion) for q in fitted.problems] == [("fitted", 24, 1.0)]
    assert [line.counts for line in (first, fourth, fitted)] == [True, True, False]
    assert "m = d," in first.name
    assert "m = 4d," in fourth.name


def test_the_papers_figures_have_the_authors_sizes():
    left, right = (figure_named(name, "paper").measured.parts for name in FIGURES[:2])
    (trained, proved) = left.values()
    assert [q.dim for q in trained.problems] == [8, 11, 16, 22, 32, 45, 64, 90, 128, 181, 256]
    assert max(q.dim for q in proved.problems) == 64
    assert {q.ratio for q in trained.problems} == {1.01}
    *widths, _ = right.values()
    assert [{q.width // q.dim for q in line.problems} for line in widths] == [{1}, {2}, {4}, {8}]


@pytest.mark.parametrize("name", FIGURES)
def test_quick_figures_have_enough_sizes(name):
    trained = next(iter(figure_named(name).measured.parts.values()))
    sizes = [q.dim**2 for q in trained.problems]
    assert len(set(sizes)) >= 4
    assert max(sizes) >= 8 * min(sizes)


@pytest.mark.parametrize("measure", [by_information, without_logarithm])
def test_figure_1_holds_where_bits_decide_and_not_where_the_logarithm_is_missing(
    monkeypatch, measure
):
    searched(monkeypatch, measure)
    monkeypatch.setattr(figure_1_left, "_SEEDS", {"quick": (0,)})
    plot = drawn(figure_named("1-left"))
    (slope,) = [each for each in plot.slopes if each.counts]
    if measure is by_information:
        assert slope.slope == pytest.approx(1, abs=0.05)
    else:
        assert slope.slope > 1.1
    trained = [row for row in plot.data.rows if row[0].startswith("trained")]
    assert [row[1] for row in trained] == [8, 12, 16, 24]
    places = [plot.data.header.index(name) for name in ("dim", "facts", "facts_not_stored", "seed")]
    for dim, stored, not_stored, seed in ([row[place] for place in places] for row in trained):
        sizes = {"dim": dim, "width": None, "seed": seed}
        assert measure(**sizes, facts=stored, outputs=stored)["stored"]
        assert not measure(**sizes, facts=not_stored, outputs=not_stored)["stored"]
        assert not_stored <= max(1.1 * stored, stored + 1)
