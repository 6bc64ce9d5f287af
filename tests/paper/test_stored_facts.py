"""Figures of stored facts, drawn of laws that are known."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from tests.paper.made import Asked, column, drawn, known_of, trained_by_law

from factmem._core.errors import FactmemError
from factmem.experiments import TransformerCapacityProblem
from factmem.experiments.memory_capacity import solve_n_log_n
from factmem.paper.stored_facts import Law, StoredLine, stored_facts_figure
from factmem.plotting.plot import Axis, Line

DIMS = (8, 16, 32, 64)
REFERENCE = Line("authors' line", (10.0, 1000.0), (1.0, 100.0), kind="reference")
LINEAR = Law("facts ∝ parameters^slope", float, float)


def figure(*lines, law=LINEAR, unless="Because.", size=lambda q: float(q.parameters)):
    return stored_facts_figure(
        "4-left",
        "A title",
        told="It is so.",
        lines=lines,
        axes=(Axis("parameters", "log"), Axis("facts", "log")),
        size=size,
        law=law,
        reference=REFERENCE,
        ran="We ran it.",
        unless=unless,
    )


def line(dims=DIMS, exponent=1.0, seeds=(0, 1, 2), name="trained", scatter=None, **more):
    given = {} if scatter is None else {"scatter": scatter}
    questions = [Asked(dim, exponent, **given) for dim in dims]
    return StoredLine(name, questions, seeds, **more)


def test_a_law_that_is_so_holds():
    plot = drawn(figure(line()))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(1, abs=0.03)
    assert slope.low <= 1 <= slope.high
    assert slope.holds
    assert plot.caption.startswith("We ran it. Points are medians over seeds")
    assert plot.caption.endswith("): holds.")
    assert "does not hold" not in plot.caption
    assert "Because." not in plot.caption


def test_a_law_that_is_not_so_fails_and_the_caption_says_it_and_why():
    plot = drawn(figure(line(exponent=1.5)))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(1.5, abs=0.03)
    assert not slope.holds
    assert "does not hold here" in slope.told
    assert "The law does not hold here for: trained." in plot.caption
    assert plot.caption.endswith("Because.")


def test_the_slope_is_of_what_the_law_is_about():
    """N ln N ∝ size where N ∝ size has an exponent above 1: least squares by hand."""
    law = Law("N ln N", lambda n: n * math.log(n), solve_n_log_n, (0.0, 2.0))
    plot = drawn(figure(line(seeds=(0,)), law=law))
    facts = [dim**2 / 2 for dim in DIMS]
    x = [2 * math.log(dim) for dim in DIMS]
    y = [math.log(n * math.log(n)) for n in facts]
    away = [each - statistics.mean(x) for each in x]
    expected = sum(a * b for a, b in zip(away, y, strict=True)) / sum(a * a for a in away)
    assert plot.slopes[0].slope == pytest.approx(expected, abs=0.01)
    assert plot.slopes[0].law == "N ln N"
    fit = plot.panels[0].lines[1]
    for size, n in zip(fit.x, fit.y, strict=True):
        height = statistics.mean(y) + expected * (math.log(size) - statistics.mean(x))
        assert math.log(n * math.log(n)) == pytest.approx(height, abs=0.02)


def test_seeds_that_scatter_much_leave_it_open():
    plot = drawn(figure(line((8, 16, 32), scatter=(1.0, 6.0, 0.2))))
    (slope,) = plot.slopes
    assert slope.low < 1 < slope.high
    assert slope.high - slope.low > 0.3
    assert not slope.holds
    assert "too wide to tell" in plot.caption


def test_points_are_medians_with_the_range_over_seeds():
    plot = drawn(figure(line()))
    (chart,) = plot.panels
    measured, fit, reference = chart.lines
    assert fit.kind == "fit"
    assert (reference.name, reference.kind) == (REFERENCE.name, "reference")
    ends = [math.log(x) for x in REFERENCE.x], [math.log(y) for y in REFERENCE.y]
    assert [math.log(y) for y in reference.y] == pytest.approx(
        np.interp([math.log(x) for x in reference.x], *ends)
    )
    assert measured.x == tuple(float(dim**2) for dim in DIMS)
    for place, dim in enumerate(DIMS):
        limits = [factor * dim**2 / 2 for factor in (0.97, 1.0, 1.02)]
        found = (measured.low[place], measured.y[place], measured.high[place])
        for value, limit in zip(found, limits, strict=True):
            assert limit / 1.02 - 1 <= value <= limit
    assert measured.told[0].startswith("trained, d = 8: ")
    assert "(median of 3 seeds" in measured.told[0]
    assert measured.told[0].endswith("64 parameters")


def test_the_order_of_the_search_is_not_that_of_the_line():
    plots = [drawn(figure(line(dims, seeds=(0,)))) for dims in ((16, 64, 8, 32), (8, 16, 32, 64))]
    shuffled, ordered = (plot.panels[0].lines[0] for plot in plots)
    assert shuffled.x == ordered.x == (64.0, 256.0, 1024.0, 4096.0)
    assert [column(plot, "dim") for plot in plots] == [[8, 16, 32, 64]] * 2
    assert shuffled.y == pytest.approx(ordered.y, rel=0.05)


def test_there_is_a_row_for_each_seed_of_each_size_of_each_line():
    plot = drawn(figure(line((8, 16)), line((32,), seeds=(0,), name="beside, it", counts=False)))
    keys = ("line", "dim", "seed")
    assert list(zip(*(column(plot, key) for key in keys), strict=True)) == [
        *(("trained", dim, seed) for dim in (8, 16) for seed in (0, 1, 2)),
        ("beside, it", 32, 0),
    ]
    for row in plot.data.rows:
        found = dict(zip(plot.data.header, row, strict=True))
        limit = (1.0, 1.02, 0.97)[found["seed"]] * found["dim"] ** 2 / 2
        assert found["largest_stored"] <= limit < found["smallest_not_stored"]
        assert found["facts"] == found["largest_stored"]
        assert found["facts_not_stored"] == found["smallest_not_stored"]
        assert found["size"] == found["parameters"] == found["dim"] ** 2
        assert (found["criterion"], found["relative_margin"]) == (0.99, 0.125)
        assert found["probes"] >= 2
        assert found["possible"] is None
        assert found["heads"] is None


def test_a_line_beside_the_law_fails_nothing_and_needs_six_points_for_a_slope():
    beside = {"exponent": 2.0, "counts": False}
    few = line((8, 16), name="few", seeds=(0, 1), **beside)
    many = line((8, 16), name="many", seeds=(0, 1, 2), **beside)
    plot = drawn(figure(line(), few, many))
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
    assert len(plot.panels[0].lines) == 5, "the fit of what counts alone"


def test_the_fit_is_drawn_through_the_points_with_its_slope():
    plot = drawn(figure(line()))
    measured, fit, _ = plot.panels[0].lines
    (slope,) = plot.slopes
    assert fit.name == f"fit, slope {slope.slope:.2f} ({slope.low:.2f} to {slope.high:.2f})"
    assert (fit.x[0], fit.x[-1]) == (pytest.approx(64), pytest.approx(4096))
    rise = math.log(fit.y[-1] / fit.y[0]) / math.log(fit.x[-1] / fit.x[0])
    assert rise == pytest.approx(slope.slope)
    assert fit.y[0] == pytest.approx(measured.y[0], rel=0.1)
    assert fit.y[-1] == pytest.approx(measured.y[-1], rel=0.1)


def test_of_many_lines_no_fit_is_drawn():
    lines = [line((8, 16), name=f"line {k}") for k in range(5)]
    plot = drawn(figure(*lines))
    assert [each.kind for each in plot.panels[0].lines] == ["measured"] * 5 + ["reference"]
    assert len(plot.slopes) == 5 + 1, "each, and all together"


def test_where_a_seed_stores_nothing_there_is_no_point_and_no_slope():
    plot = drawn(figure(line((1, 8, 16), scatter=(1.0, 1.0, 1.0))))
    (chart,) = plot.panels
    assert chart.lines[0].x == (64.0, 256.0)
    (slope,) = plot.slopes
    assert slope.slope is None
    assert not slope.holds
    assert "Without a point, for some seed stores nothing: trained at d = 1." in plot.caption
    assert column(plot, "largest_stored")[:3] == [None] * 3
    assert column(plot, "facts")[:3] == [None] * 3


def test_one_size_alone_has_no_slope():
    (slope,) = drawn(figure(line((8,)))).slopes
    assert slope.slope is None


def test_two_points_have_no_interval_and_so_no_slope():
    (slope,) = drawn(figure(line((8, 16), seeds=(0,)))).slopes
    assert slope.slope is None


# ---- limits of embeddings ------------------------------------------------------------------------

TRAINED = (16, 32, 24, 12, 8)


def transformers(dims=TRAINED, **more):
    questions = [
        TransformerCapacityProblem(dim, 4, dim // 4, dim, protocol="quick") for dim in dims
    ]
    return StoredLine("trained", questions, (0, 1, 2), limits=True, **more)


def test_sizes_that_embeddings_limit_have_a_second_slope_without_them(monkeypatch):
    trained_by_law(monkeypatch, limited=(8,))
    plot = drawn(figure(transformers()))
    assert [slope.name for slope in plot.slopes] == [
        "trained",
        "trained, sizes that embeddings do not limit",
    ]
    assert all(slope.counts for slope in plot.slopes)
    assert "Embeddings alone set a limit" in plot.caption
    assert "at d = 8 75 % of the facts have an answer" in plot.caption
    assert "at d = 12" not in plot.caption
    possible = dict(zip(column(plot, "dim"), column(plot, "possible"), strict=True))
    assert possible == {8: 0.75, 12: 1.0, 16: 1.0, 24: 1.0, 32: 1.0}
    assert plot.panels[0].lines[0].x == (384.0, 864.0, 1536.0, 3456.0, 6144.0)


def test_what_nothing_limits_has_one_slope(monkeypatch):
    trained_by_law(monkeypatch)
    plot = drawn(figure(transformers()))
    (slope,) = plot.slopes
    assert slope.slope == pytest.approx(1, abs=0.1)
    assert "Embeddings" not in plot.caption


def test_the_second_slope_is_that_of_the_other_sizes(monkeypatch):
    trained_by_law(monkeypatch, limited=(8, 12))
    both = drawn(figure(transformers()))
    free = drawn(figure(transformers((16, 32, 24))))
    without, alone = both.slopes[1], free.slopes[0]
    assert (without.slope, without.low, without.high) == (alone.slope, alone.low, alone.high)


# ---- many lines --------------------------------------------------------------------------------


def test_of_many_lines_the_caption_tells_what_they_come_to_and_slopes_have_each(monkeypatch):
    trained_by_law(monkeypatch, limited=(8,))
    lines = [replace(transformers(), name=f"β = {number}", group="α") for number in range(6)]
    plot = drawn(figure(*lines))
    together = plot.slopes[-1]
    assert together.name == "all lines, sizes that embeddings do not limit"
    assert together.counts
    assert together.slope == pytest.approx(1, abs=0.05)
    assert len(plot.slopes) == 6 * 2 + 1
    # Six times the same line: the same slope, and an interval that is narrower.
    alone = plot.slopes[1]
    assert together.slope == pytest.approx(alone.slope, abs=1e-9)
    assert together.high - together.low < alone.high - alone.low
    assert together.told in plot.caption
    assert plot.slopes[0].told not in plot.caption
    says = sum(slope.says for slope in plot.slopes[:-1])
    assert f"Slopes of {says} lines have an interval that says something" in plot.caption
    assert plot.caption.count("at d = 8 ") == 1
    assert {each.group for each in plot.panels[0].lines if each.own} == {"α"}


def test_few_lines_are_told_one_by_one(monkeypatch):
    trained_by_law(monkeypatch)
    lines = [replace(transformers(), name=f"β = {number}") for number in range(4)]
    plot = drawn(figure(*lines))
    assert len(plot.slopes) == 4
    assert all(slope.told in plot.caption for slope in plot.slopes)


# ---- before all is there -------------------------------------------------------------------------


def test_what_is_there_of_a_figure_is_drawn_and_the_caption_says_how_much():
    whole = figure(line(), line(name="second", exponent=1.1))
    known = known_of(whole.measured)
    assert "So far" not in whole.drawn(known).caption
    some = {i: r for i, r in known.items() if r.config["dim"] < (32, 64)[r.config["exponent"] == 1]}
    plot = whole.drawn(some)
    assert plot.caption.endswith("So far 5 of 8 shapes are there.")
    first, second = (each for each in plot.panels[0].lines if each.kind == "measured")
    assert first.x == (64.0, 256.0, 1024.0)
    assert second.x == (64.0, 256.0)
    assert len(plot.data.rows) == 3 * 5


def test_of_nothing_no_figure_is_drawn():
    with pytest.raises(FactmemError, match="no search of it is over yet"):
        figure(line()).drawn({})


def test_a_line_of_which_nothing_is_there_is_empty():
    whole = figure(line(), line(name="second", exponent=1.1))
    known = known_of(whole.measured)
    plot = whole.drawn({i: r for i, r in known.items() if r.config["exponent"] == 1})
    assert [each.x for each in plot.panels[0].lines if each.name == "second"] == [()]
    assert [slope.slope for slope in plot.slopes if slope.name == "second"] == [None]
    assert plot.caption.endswith("So far 4 of 8 shapes are there.")
