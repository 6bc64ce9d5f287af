"""Sizes, seeds and dashed lines of the figures of memories."""

import math
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.paper.claim_checks import (
    one_bit_per_weight,
    proportional_to_weights,
    replace_memory_measurement,
)
from tests.paper.stand_ins import draw

from factmem.paper import figure_1_left, get_figure
from factmem.paper.memory_figures import (
    authors_line,
    capacity_law,
    half_powers,
    matrix_lines,
    mlp_lines,
)

FIGURES = ("1-left", "1-right", "6")


def test_half_powers_are_rounded_down():
    assert half_powers(3, 7.5) == (8, 11, 16, 22, 32, 45, 64, 90, 128, 181)
    assert half_powers(3, 3) == (8,)
    assert half_powers(3, 4.0) == (8, 11, 16)


def reference_line(name, monkeypatch):
    """Return the authors' line of a figure without measuring anything."""
    module = import_module(f"factmem.paper.figure_{name.replace('-', '_')}")
    original, captured = module.capacity_figure, {}

    def capture(*arguments, **named):
        captured.update(named)
        return original(*arguments, **named)

    monkeypatch.setattr(module, "capacity_figure", capture)
    get_figure(name)
    assert captured["reference"].kind == "reference"
    return captured["reference"]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("1-left", lambda n: 1.3 * n * math.log(n)),
        ("1-right", lambda n: 0.35 * n * math.log(n)),
        ("6", lambda n: 1.2 * n),
    ],
)
def test_authors_lines_follow_their_formula(monkeypatch, name, size):
    line = reference_line(name, monkeypatch)
    for x, facts in zip(line.x, line.y, strict=True):
        assert x == pytest.approx(size(facts), rel=1e-9)
    assert list(line.x) == sorted(line.x)
    assert line.y[-1] > 100 * line.y[0]


@given(st.sampled_from([(20, 6000), (1.5, 3.0)]), st.floats(0.1, 10), st.booleans())
def test_authors_line_connects_its_ends(ends, factor, logarithm):
    line = authors_line("it", ends, factor, logarithm=logarithm)
    assert (line.y[0], line.y[-1]) == (pytest.approx(ends[0]), pytest.approx(ends[1]))
    for x, n in zip(line.x, line.y, strict=True):
        assert x == pytest.approx(factor * n * (math.log(n) if logarithm else 1))


def test_law_has_a_logarithm_if_its_quantity_does():
    assert capacity_law("N ln N", "d²").value(100.0) == pytest.approx(100 * math.log(100))
    assert capacity_law("N", "m·d").value(100.0) == 100
    assert capacity_law("N ln N", "d²").formula == "N ln N ∝ (d²)^slope"
    assert capacity_law("N ln N", "d²").value(1.0) == 0


@given(st.sampled_from(["N ln N", "N"]), st.floats(2, 1e6))
def test_inverse_of_a_law(quantity, facts):
    law = capacity_law(quantity, "d²")
    assert law.inverse(law.value(facts)) == pytest.approx(facts)


def test_matrices_are_trained_to_99_percent_and_optimal_for_all():
    trained, optimal = matrix_lines((8, 16), (8,), (0, 1), "paper")
    assert [(p.dim, p.method, p.criterion, p.ratio) for p in trained.problems] == [
        (8, "trained", 0.99, 1.01),
        (16, "trained", 0.99, 1.01),
    ]
    assert [(p.dim, p.method, p.criterion) for p in optimal.problems] == [(8, "optimal", 1.0)]
    assert (trained.counts, optimal.counts) == (True, False)


@pytest.mark.parametrize(("scale", "method"), [("quick", "quick"), ("paper", "trained")])
def test_mlps_have_a_line_for_each_width_ratio_and_a_fitted_one(scale, method):
    first, fourth, fitted = mlp_lines((1, 4), (8, 16), ((8, 24),), 32, (0,), scale)
    assert [(p.dim, p.width, p.outputs) for p in first.problems] == [(8, 8, 32), (16, 16, 32)]
    assert [(p.dim, p.width) for p in fourth.problems] == [(8, 32), (16, 64)]
    assert {(p.method, p.criterion) for p in first.problems} == {(method, 0.99)}
    assert [(p.method, p.width, p.criterion) for p in fitted.problems] == [("fitted", 24, 1.0)]
    assert [line.counts for line in (first, fourth, fitted)] == [True, True, False]
    assert "m = d," in first.name
    assert "m = 4d," in fourth.name


def test_paper_figures_have_the_authors_sizes():
    left, right = (get_figure(name, "paper").measurement.parts for name in FIGURES[:2])
    (trained, optimal) = left.values()
    assert [p.dim for p in trained.problems] == [8, 11, 16, 22, 32, 45, 64, 90, 128, 181, 256]
    assert max(p.dim for p in optimal.problems) == 64
    assert {p.ratio for p in trained.problems} == {1.01}
    *widths, _ = right.values()
    assert [{p.width // p.dim for p in line.problems} for line in widths] == [{1}, {2}, {4}, {8}]


@pytest.mark.parametrize("name", FIGURES)
def test_quick_figures_have_enough_sizes(name):
    trained = next(iter(get_figure(name).measurement.parts.values()))
    sizes = [p.dim**2 for p in trained.problems]
    assert len(set(sizes)) >= 4
    assert max(sizes) >= 8 * min(sizes)


@pytest.mark.parametrize("function", [one_bit_per_weight, proportional_to_weights])
def test_figure_1_holds_only_with_the_logarithm(monkeypatch, function):
    replace_memory_measurement(monkeypatch, function)
    monkeypatch.setattr(figure_1_left, "_SEEDS", {"quick": (0,)})
    plot = draw(get_figure("1-left"))
    (slope,) = [each for each in plot.slopes if each.counts]
    if function is one_bit_per_weight:
        assert slope.slope == pytest.approx(1, abs=0.05)
    else:
        assert slope.slope > 1.1
    trained = [row for row in plot.data.rows if row[0].startswith("trained")]
    assert [row[1] for row in trained] == [8, 12, 16, 24]
    columns = [plot.data.header.index(n) for n in ("dim", "facts", "facts_not_stored", "seed")]
    for dim, stored, not_stored, seed in ([row[index] for index in columns] for row in trained):
        sizes = {"dim": dim, "width": None, "seed": seed}
        assert function(**sizes, facts=stored, outputs=stored)["stored"]
        assert not function(**sizes, facts=not_stored, outputs=not_stored)["stored"]
        assert not_stored <= max(1.1 * stored, stored + 1)
