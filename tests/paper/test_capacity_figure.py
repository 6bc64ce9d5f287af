"""Capacity figures, with capacities that follow known laws."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from tests.paper.stand_ins import PowerLawProblem, column, draw, run_all, train_by_law

from factmem._core.errors import FactmemError
from factmem.experiments import TransformerCapacityProblem
from factmem.experiments.memory_capacity import solve_n_log_n
from factmem.paper.capacity_figure import CapacityLaw, CapacityLine, capacity_figure
from factmem.plotting.plot import Axis, Line
from factmem.transformer.shape import Shape

DIMS = (8, 16, 32, 64)
REFERENCE = Line("authors' line", (10.0, 1000.0), (1.0, 100.0), kind="reference")
LINEAR = CapacityLaw("facts ∝ parameters^slope", float, float)


def make_figure(*lines, law=LINEAR):
    return capacity_figure(
        "4-left",
        "A title",
        description="It is so.",
        lines=lines,
        axes=(Axis("parameters", "log"), Axis("facts", "log")),
        size=lambda problem: float(problem.parameters),
        law=law,
        reference=REFERENCE,
        setup="We ran it.",
        explanation="Because.",
    )


def make_line(dims=DIMS, exponent=1.0, seeds=(0, 1, 2), name="trained", scatter=None, **fields):
    options = {} if scatter is None else {"scatter": scatter}
    problems = [PowerLawProblem(dim, exponent, **options) for dim in dims]
    return CapacityLine(name, problems, seeds, **fields)


def test_a_law_that_is_met_holds():
    plot = draw(make_figure(make_line()))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(1, abs=0.03)
    assert slope.low <= 1 <= slope.high
    assert slope.holds
    assert plot.caption.startswith("We ran it. Points are medians over seeds")
    assert plot.caption.endswith("): holds.")
    assert "does not hold" not in plot.caption
    assert "Because." not in plot.caption


def test_caption_explains_a_law_that_fails():
    plot = draw(make_figure(make_line(exponent=1.5)))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(1.5, abs=0.03)
    assert not slope.holds
    assert "does not hold here" in slope.description
    assert "The law does not hold here for: trained." in plot.caption
    assert plot.caption.endswith("Because.")


def test_slope_is_fitted_to_the_value_of_the_law():
    """If N ∝ size, N ln N has an exponent above 1: least squares by hand."""
    law = CapacityLaw("N ln N", lambda n: n * math.log(n), solve_n_log_n, (0.0, 2.0))
    plot = draw(make_figure(make_line(seeds=(0,)), law=law))
    facts = [dim**2 / 2 for dim in DIMS]
    x = [2 * math.log(dim) for dim in DIMS]
    y = [math.log(n * math.log(n)) for n in facts]
    centered = [each - statistics.mean(x) for each in x]
    products = [a * b for a, b in zip(centered, y, strict=True)]
    expected = sum(products) / sum(a * a for a in centered)
    assert plot.slopes[0].slope == pytest.approx(expected, abs=0.01)
    assert plot.slopes[0].law == "N ln N"
    fit = plot.panels[0].lines[1]
    for size, n in zip(fit.x, fit.y, strict=True):
        height = statistics.mean(y) + expected * (math.log(size) - statistics.mean(x))
        assert math.log(n * math.log(n)) == pytest.approx(height, abs=0.02)


def test_a_large_scatter_over_seeds_is_inconclusive():
    plot = draw(make_figure(make_line((8, 16, 32), scatter=(1.0, 6.0, 0.2))))
    (slope,) = plot.slopes
    assert slope.low < 1 < slope.high
    assert slope.high - slope.low > 0.3
    assert not slope.holds
    assert "inconclusive" in plot.caption


def test_points_are_medians_with_the_range_over_seeds():
    plot = draw(make_figure(make_line()))
    (chart,) = plot.panels
    measured, fit, reference = chart.lines
    assert fit.kind == "fit"
    assert (reference.name, reference.kind) == (REFERENCE.name, "reference")
    ends = [math.log(x) for x in REFERENCE.x], [math.log(y) for y in REFERENCE.y]
    assert [math.log(y) for y in reference.y] == pytest.approx(
        np.interp([math.log(x) for x in reference.x], *ends)
    )
    assert measured.x == tuple(float(dim**2) for dim in DIMS)
    for index, dim in enumerate(DIMS):
        limits = [factor * dim**2 / 2 for factor in (0.97, 1.0, 1.02)]
        values = (measured.low[index], measured.y[index], measured.high[index])
        for value, limit in zip(values, limits, strict=True):
            assert limit / 1.02 - 1 <= value <= limit
    assert measured.hover_texts[0].startswith("trained, d = 8: ")
    assert "(median of 3 seeds" in measured.hover_texts[0]
    assert measured.hover_texts[0].endswith("64 parameters")


def test_lines_are_sorted_by_size_whatever_the_order_of_the_search():
    plots = [
        draw(make_figure(make_line(dims, seeds=(0,))))
        for dims in ((16, 64, 8, 32), (8, 16, 32, 64))
    ]
    shuffled, ordered = (plot.panels[0].lines[0] for plot in plots)
    assert shuffled.x == ordered.x == (64.0, 256.0, 1024.0, 4096.0)
    assert [column(plot, "dim") for plot in plots] == [[8, 16, 32, 64]] * 2
    assert shuffled.y == pytest.approx(ordered.y, rel=0.05)


def test_data_has_a_row_for_each_seed_of_each_size_of_each_line():
    plot = draw(
        make_figure(
            make_line((8, 16)), make_line((32,), seeds=(0,), name="other, it", counts=False)
        )
    )
    keys = ("line", "dim", "seed")
    assert list(zip(*(column(plot, key) for key in keys), strict=True)) == [
        *(("trained", dim, seed) for dim in (8, 16) for seed in (0, 1, 2)),
        ("other, it", 32, 0),
    ]
    for row in plot.data.rows:
        cells = dict(zip(plot.data.header, row, strict=True))
        limit = (1.0, 1.02, 0.97)[cells["seed"]] * cells["dim"] ** 2 / 2
        assert cells["largest_stored"] <= limit < cells["smallest_not_stored"]
        assert cells["facts"] == cells["largest_stored"]
        assert cells["facts_not_stored"] == cells["smallest_not_stored"]
        assert cells["size"] == cells["parameters"] == cells["dim"] ** 2
        assert (cells["criterion"], cells["min_relative_margin"]) == (0.99, 0.125)
        assert cells["probes"] >= 2
        assert cells["possible"] is None
        assert cells["heads"] is None


def test_a_comparison_line_cannot_fail_and_needs_six_points_for_a_slope():
    options = {"exponent": 2.0, "counts": False}
    few = make_line((8, 16), name="few", seeds=(0, 1), **options)
    many = make_line((8, 16), name="many", seeds=(0, 1, 2), **options)
    plot = draw(make_figure(make_line(), few, many))
    assert [(slope.name, slope.counts) for slope in plot.slopes] == [
        ("trained", True),
        ("many", False),
    ]
    assert plot.slopes[1].slope == pytest.approx(2, abs=0.05)
    assert not plot.slopes[1].holds
    assert "The law does not hold" not in plot.caption
    lines = [(each.name, each.kind) for each in plot.panels[0].lines if each.kind != "fit"]
    assert lines == [
        ("trained", "measured"),
        ("few", "measured"),
        ("many", "measured"),
        ("authors' line", "reference"),
    ]
    assert len(plot.panels[0].lines) == 5, "only the fit of the line that counts"


def test_fit_passes_through_the_points():
    plot = draw(make_figure(make_line()))
    measured, fit, _ = plot.panels[0].lines
    (slope,) = plot.slopes
    assert fit.name == f"fit, slope {slope.slope:.2f} ({slope.low:.2f} to {slope.high:.2f})"
    assert (fit.x[0], fit.x[-1]) == (pytest.approx(64), pytest.approx(4096))
    rise = math.log(fit.y[-1] / fit.y[0]) / math.log(fit.x[-1] / fit.x[0])
    assert rise == pytest.approx(slope.slope)
    assert fit.y[0] == pytest.approx(measured.y[0], rel=0.1)
    assert fit.y[-1] == pytest.approx(measured.y[-1], rel=0.1)


def test_no_fits_are_drawn_for_many_lines():
    lines = [make_line((8, 16), name=f"line {k}") for k in range(5)]
    plot = draw(make_figure(*lines))
    assert [each.kind for each in plot.panels[0].lines] == ["measured"] * 5 + ["reference"]
    assert len(plot.slopes) == 5 + 1, "each line, and all lines"


def test_a_size_at_which_a_seed_stores_nothing_has_no_point_and_no_slope():
    plot = draw(make_figure(make_line((1, 8, 16), scatter=(1.0, 1.0, 1.0))))
    (chart,) = plot.panels
    assert chart.lines[0].x == (64.0, 256.0)
    (slope,) = plot.slopes
    assert slope.slope is None
    assert not slope.holds
    assert "Not shown, because a seed stores nothing: trained at d = 1." in plot.caption
    assert column(plot, "largest_stored")[:3] == [None] * 3
    assert column(plot, "facts")[:3] == [None] * 3


def test_one_size_has_no_slope():
    (slope,) = draw(make_figure(make_line((8,)))).slopes
    assert slope.slope is None


def test_two_points_have_no_interval_and_no_slope():
    (slope,) = draw(make_figure(make_line((8, 16), seeds=(0,)))).slopes
    assert slope.slope is None


# ---- limits of embeddings ------------------------------------------------------------------------

DIMS_FROM_8 = (16, 32, 24, 12, 8)


def trained_line(dims=DIMS_FROM_8, **fields):
    problems = [
        TransformerCapacityProblem(Shape(dim, 4, dim // 4, dim), protocol="quick") for dim in dims
    ]
    return CapacityLine("trained", problems, (0, 1), with_limits=True, **fields)


def test_sizes_limited_by_embeddings_are_left_out_of_a_second_slope(monkeypatch):
    train_by_law(monkeypatch, limited=(8,))
    plot = draw(make_figure(trained_line()))
    assert [slope.name for slope in plot.slopes] == [
        "trained",
        "trained, sizes that embeddings do not limit",
    ]
    assert all(slope.counts for slope in plot.slopes)
    assert "The embeddings alone set a limit" in plot.caption
    assert "at d = 8 75% of the facts have an answer" in plot.caption
    assert "at d = 12" not in plot.caption
    possible = dict(zip(column(plot, "dim"), column(plot, "possible"), strict=True))
    assert possible == {8: 0.75, 12: 1.0, 16: 1.0, 24: 1.0, 32: 1.0}
    assert plot.panels[0].lines[0].x == (384.0, 864.0, 1536.0, 3456.0, 6144.0)


def test_a_line_without_limits_has_one_slope(monkeypatch):
    train_by_law(monkeypatch)
    plot = draw(make_figure(trained_line()))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(1, abs=0.1)
    assert "embeddings" not in plot.caption


def test_second_slope_is_that_of_the_unlimited_sizes(monkeypatch):
    train_by_law(monkeypatch, limited=(8, 12))
    both = draw(make_figure(trained_line()))
    free = draw(make_figure(trained_line((16, 32, 24))))
    without, alone = both.slopes[1], free.slopes[0]
    assert (without.slope, without.low, without.high) == (alone.slope, alone.low, alone.high)


# ---- many lines --------------------------------------------------------------------------------


def test_caption_summarizes_the_slopes_of_many_lines(monkeypatch):
    train_by_law(monkeypatch, limited=(8,))
    lines = [replace(trained_line(), name=f"β = {number}", group="α") for number in range(5)]
    plot = draw(make_figure(*lines))
    combined = plot.slopes[-1]
    assert combined.name == "all lines, sizes that embeddings do not limit"
    assert combined.counts
    assert combined.slope == pytest.approx(1, abs=0.05)
    assert len(plot.slopes) == 5 * 2 + 1
    # Five copies of one line: the same slope, with a narrower interval.
    alone = plot.slopes[1]
    assert combined.slope == pytest.approx(alone.slope, abs=1e-9)
    assert combined.high - combined.low < alone.high - alone.low
    assert combined.description in plot.caption
    assert plot.slopes[0].description not in plot.caption
    conclusive = sum(slope.conclusive for slope in plot.slopes[:-1])
    assert f"{conclusive} lines have a conclusive interval" in plot.caption
    assert plot.caption.count("at d = 8 ") == 1
    assert {each.group for each in plot.panels[0].lines if each.has_own_style} == {"α"}


def test_caption_describes_each_slope_of_few_lines(monkeypatch):
    train_by_law(monkeypatch)
    lines = [replace(trained_line(), name=f"β = {number}") for number in range(4)]
    plot = draw(make_figure(*lines))
    assert len(plot.slopes) == 4
    assert all(slope.description in plot.caption for slope in plot.slopes)


# ---- partial figures -----------------------------------------------------------------------------


def test_a_partial_figure_is_drawn_and_its_caption_says_how_much_is_finished():
    figure = make_figure(make_line(), make_line(name="second", exponent=1.1))
    known = run_all(figure.measurement)
    assert "So far" not in figure.draw(known).caption
    some = {i: r for i, r in known.items() if r.config["dim"] < (32, 64)[r.config["exponent"] == 1]}
    plot = figure.draw(some)
    assert plot.caption.endswith("So far 5 of 8 shapes are finished.")
    first, second = (each for each in plot.panels[0].lines if each.kind == "measured")
    assert first.x == (64.0, 256.0, 1024.0)
    assert second.x == (64.0, 256.0)
    assert len(plot.data.rows) == 3 * 5


def test_rejects_a_figure_without_finished_searches():
    with pytest.raises(FactmemError, match="none of its searches is finished"):
        make_figure(make_line()).draw({})


def test_a_line_without_finished_searches_is_empty():
    figure = make_figure(make_line(), make_line(name="second", exponent=1.1))
    known = run_all(figure.measurement)
    plot = figure.draw({i: r for i, r in known.items() if r.config["exponent"] == 1})
    assert [each.x for each in plot.panels[0].lines if each.name == "second"] == [()]
    assert [slope.slope for slope in plot.slopes if slope.name == "second"] == [None]
    assert plot.caption.endswith("So far 4 of 8 shapes are finished.")
