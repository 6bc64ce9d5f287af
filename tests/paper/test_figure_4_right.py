"""Figure 4, right: the map, its frontier and the smallest shape that stores the table."""

import numpy as np
import pytest
from tests.paper.made import column

from factmem._core.errors import FactmemError
from factmem.paper.figure_4_right import figure_4_right, smallest_stored
from factmem.paper.shape_map import PAPER_MAP, QUICK_MAP, ShapeMap
from factmem.plotting.matplotlib_backend import printed

SMALL = ShapeMap(4, 2, 3, (1, 2, 4), (1, 3), (0, 1, 2), "quick")


def accuracy(config):
    """Enough weights, and enough heads: a rule that is easy to follow."""
    parameters = 4 * config["heads"] * config["dim"] * config["head_dim"]
    parameters += 2 * config["width"] * config["dim"]
    return min(1.0, parameters / 140) - 0.3 * (config["seed"] == 2)


def drawn(places, rule=accuracy):
    figure = figure_4_right(places=places)
    return figure.plot([{"best_accuracy": rule(task.config)} for task in figure.measured.tasks])


def test_the_frontier_of_the_paper():
    """Vertical at H·d·d_h = 1280 down to m·d = 1660, then y = 2300 − x/2."""
    (cells,) = drawn(PAPER_MAP).panels
    (line,) = cells.lines
    assert line.x[:2] == (1280, 1280)
    assert line.y[0] == max(cells.y_edges)
    assert line.y[1] == pytest.approx(1660)
    for x, y in zip(line.x[1:], line.y[1:], strict=True):
        assert y == pytest.approx(2300 - x / 2)
    assert min(cells.y_edges) <= line.y[2]
    assert line.x[2] <= max(cells.x_edges)


def test_the_map_of_the_paper_has_the_authors_axes():
    plot = drawn(PAPER_MAP)
    (cells,) = plot.panels
    middles = [(a + b) / 2 for a, b in zip(cells.x_edges, cells.x_edges[1:], strict=False)]
    assert (cells.x.label, cells.y.label) == ("attention, H·d·d_h", "MLP, m·d")
    assert (middles[0], cells.x.ticks[-1][0]) == (256, 8192)
    assert cells.x_edges[0] < 256 < cells.x_edges[1]
    assert cells.x_edges[-2] < 8192 < cells.x_edges[-1]
    assert cells.y_edges[0] < 32 < cells.y_edges[1]
    assert cells.y_edges[-2] < 4096 < cells.y_edges[-1]
    assert (len(cells.values), len(cells.values[0])) == (13, 13)
    assert cells.texts is None
    assert "seed 64" in plot.caption
    assert "1,024 facts" in plot.caption


@pytest.mark.parametrize("places", [SMALL, QUICK_MAP, PAPER_MAP])
def test_every_value_lies_within_its_cell_and_ticks_do_not_crowd(places):
    (cells,) = drawn(places).panels
    attention = [heads * places.dim * places.head_dim for heads in places.heads]
    mlp = [width * places.dim for width in places.widths]
    for values, edges, axis in (
        (attention, cells.x_edges, cells.x),
        (mlp, cells.y_edges, cells.y),
    ):
        assert len(edges) == len(values) + 1
        assert all(a < v < b for a, v, b in zip(edges, values, edges[1:], strict=False))
        ticks = [place for place, _ in axis.ticks]
        assert set(ticks) <= set(map(float, values))
        assert ticks[0] == values[0]
        assert (np.diff(ticks) >= 0.06 * values[-1]).all()
        assert all(name == f"{int(place):,}" for place, name in axis.ticks)


def test_cells_are_medians_over_seeds_and_rows_are_every_run():
    plot = drawn(SMALL)
    (cells,) = plot.panels
    for y, width in enumerate(SMALL.widths):
        for x, heads in enumerate(SMALL.heads):
            parameters = 32 * heads + 8 * width
            assert cells.values[y][x] == pytest.approx(min(1.0, parameters / 140))
            assert cells.texts[y][x] == f"{100 * min(1.0, parameters / 140):.0f} %"
            told = f"{heads} heads, {width} neurons, {parameters} parameters"
            assert cells.told[y][x].startswith(told)
    assert len(plot.data.rows) == 3 * 2 * 3
    for row in plot.data.rows:
        found = dict(zip(plot.data.header, row, strict=True))
        assert found["attention"] == 4 * found["heads"] * 8
        assert found["mlp"] == 2 * found["width"] * 4
        assert found["parameters"] == found["attention"] + found["mlp"]
    assert column(plot, "seed") == [0, 1, 2] * 6
    assert "median over seeds 0, 1, 2" in plot.caption


def test_the_smallest_shape_that_stores_the_table_is_told_with_its_share_of_mlp():
    # 140 parameters are needed: of 4·8·H + 8·m that is first (4, 3) with 152 and then none,
    # unless the last heads are out of reach.
    parameters, share = smallest_stored(
        drawn(ShapeMap(4, 2, 3, (1, 2, 4), (1, 3), (0, 1), "quick"))
    )
    assert (parameters, share) == (152, pytest.approx(24 / 152))
    assert smallest_stored(drawn(SMALL)) == (parameters, share), "a median over seeds counts"


def test_where_nothing_is_stored_there_is_no_smallest():
    assert smallest_stored(drawn(SMALL, lambda _: 0.98)) is None
    assert smallest_stored(drawn(SMALL, lambda _: 0.99)) == (40, pytest.approx(8 / 40))


def test_the_frontier_is_scaled_to_the_table():
    """Per fact and per token as the authors drew it for 1,024 facts and 64 tokens."""
    (line,) = drawn(QUICK_MAP).panels[0].lines
    facts, tokens, dim = 15**2, 30, 16
    assert line.x[0] == pytest.approx(1280 / (64 * 32) * tokens * dim)
    for x, y in zip(line.x[1:], line.y[1:], strict=True):
        assert 2 * y + x == pytest.approx(4600 / 1024 * facts)


def test_the_map_is_drawn_with_its_frontier():
    axes = printed(drawn(SMALL)).axes[0]
    assert axes.get_xlim() == (pytest.approx(4.0), pytest.approx(40.0))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "the authors' frontier, scaled to this table"
    ]


def test_places_that_are_missing_have_no_color_and_the_caption_says_how_many():
    figure = figure_4_right(places=SMALL)
    results = [{"best_accuracy": accuracy(task.config)} for task in figure.measured.tasks]
    results[4] = {}  # of m = 1 and H = 2, the second seed
    plot = figure.plot(results)
    (cells,) = plot.panels
    assert [[value is None for value in row] for row in cells.values] == [[0, 1, 0], [0, 0, 0]]
    assert cells.texts[0][1] == ""
    assert cells.told[0][1].endswith("not measured")
    assert all(told.endswith("% right") for told in cells.told[1])
    assert plot.caption.endswith("So far 17 of 18 runs are there.")
    assert column(plot, "best_accuracy")[4] is None
    printed(plot)
    with pytest.raises(FactmemError, match="no run of it is there yet"):
        figure.drawn({})
