"""Figure 4, right: the shapes, their training, the map and its frontier."""

from dataclasses import replace

import numpy as np
import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken
from tests.paper.stand_ins import column

from factmem import training
from factmem._core.errors import FactmemError
from factmem.paper.figure_4_right import (
    PAPER_MAP,
    QUICK_MAP,
    ShapeMap,
    attention_against_mlp,
    figure_4_right,
    smallest_stored,
)
from factmem.plotting.matplotlib_backend import draw_matplotlib
from factmem.training import PAPER, QUICK

SMALL = ShapeMap(4, 2, 3, (1, 2, 4), (1, 3), (0, 1, 2), "quick")


# ---- shapes --------------------------------------------------------------------------------------


def test_parameters_count_four_matrices_per_head_and_two_of_the_mlp():
    assert SMALL.parameters(2, 5) == 4 * 2 * 4 * 2 + 2 * 5 * 4
    assert PAPER_MAP.parameters(8, 32) == 4 * 8 * 32 * 8 + 2 * 32 * 32


def test_all_shapes_learn_the_same_table():
    for heads, width, seed in ((1, 3, 0), (2, 1, 0)):
        config = SMALL.task(heads, width, seed).config
        assert (config["heads"], config["width"], config["seed"]) == (heads, width, seed)
        assert (config["dim"], config["head_dim"]) == (4, 2)
        assert (config["subjects"], config["relations"], config["answers"]) == (3, 3, 8)
        assert config["noise"] == 6
    identities = [SMALL.task(*run).identity for run in SMALL.runs]
    assert len(set(identities)) == 2 * 3 * 3


@pytest.mark.parametrize("shapes", [QUICK_MAP, PAPER_MAP, SMALL])
def test_training_is_not_stopped_early(shapes):
    config = shapes.task(*shapes.runs[0]).config
    assert tuple(config["training"]["early_stopping"]) == ()


def test_quick_map_compiles_four_programs_with_enough_padding():
    programs = {}
    for heads in QUICK_MAP.heads:
        for width in QUICK_MAP.widths:
            task = QUICK_MAP.task(heads, width, 0)
            padding = task.config["padding"]
            assert heads <= padding["heads"] <= 16
            assert width <= padding["width"] <= 112
            names = ("subjects", "relations", "noise", "answers", "facts")
            sizes = [padding[name] for name in names]
            assert sizes == [15, 15, 30, 120, 225], "the sizes of the table"
            programs.setdefault((padding["heads"], padding["width"]), set()).add(
                task.compiled_shape
            )
    assert set(programs) == {(6, 32), (6, 112), (16, 32), (16, 112)}
    assert all(len(shapes) == 1 for shapes in programs.values()), "one program for the workers"
    assert len(set.union(*programs.values())) == 4


def test_paper_map_is_not_padded():
    assert PAPER_MAP.task(8, 32, 64).config["padding"] is None


def test_paper_map_has_one_rate_and_otherwise_the_authors_protocol():
    config = PAPER_MAP.task(8, 32, 64).config["training"]
    assert tuple(config["learning_rates"]) == (1e-2,)
    assert (
        (config["steps"], config["batch_size"]) == (PAPER.steps, PAPER.batch_size) == (2**14, 1024)
    )


def test_quick_map_has_the_quick_protocol():
    config = QUICK_MAP.task(6, 32, 0).config["training"]
    assert tuple(config["learning_rates"]) == tuple(QUICK.learning_rates)
    assert config["steps"] == QUICK.steps


def test_paper_map_has_the_authors_grid():
    attention = [heads * PAPER_MAP.dim * PAPER_MAP.head_dim for heads in PAPER_MAP.heads]
    mlp = [width * PAPER_MAP.dim for width in PAPER_MAP.widths]
    assert (min(attention), max(attention)) == (256, 8192)
    assert (min(mlp), max(mlp)) == (32, 4096)
    assert len(attention) == len(mlp) == 13
    assert PAPER_MAP.subjects**2 == 1024
    for sizes in (PAPER_MAP.heads, PAPER_MAP.widths, QUICK_MAP.heads, QUICK_MAP.widths):
        assert list(sizes) == sorted(set(sizes))


# ---- the map -------------------------------------------------------------------------------------


def accuracy_by_parameters(config):
    parameters = 4 * config["heads"] * config["dim"] * config["head_dim"]
    parameters += 2 * config["width"] * config["dim"]
    return min(1.0, parameters / 140) - 0.3 * (config["seed"] == 2)


def draw(shapes, accuracy=accuracy_by_parameters):
    figure = figure_4_right(shape_map=shapes)
    tasks = figure.measurement.tasks
    return figure.plot([{"best_accuracy": accuracy(task.config)} for task in tasks])


def test_frontier_of_the_paper():
    """Vertical at H·d·d_h = 1280 down to m·d = 1660, then y = 2300 − x/2."""
    (cells,) = draw(PAPER_MAP).panels
    (line,) = cells.lines
    assert line.x[:2] == (1280, 1280)
    assert line.y[0] == max(cells.y_edges)
    assert line.y[1] == pytest.approx(1660)
    for x, y in zip(line.x[1:], line.y[1:], strict=True):
        assert y == pytest.approx(2300 - x / 2)
    assert min(cells.y_edges) <= line.y[2]
    assert line.x[2] <= max(cells.x_edges)


def test_paper_map_has_the_authors_axes():
    plot = draw(PAPER_MAP)
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


@pytest.mark.parametrize("shapes", [SMALL, QUICK_MAP, PAPER_MAP])
def test_values_lie_within_their_cells_and_ticks_are_far_apart(shapes):
    (cells,) = draw(shapes).panels
    attention = [heads * shapes.dim * shapes.head_dim for heads in shapes.heads]
    mlp = [width * shapes.dim for width in shapes.widths]
    for values, edges, axis in (
        (attention, cells.x_edges, cells.x),
        (mlp, cells.y_edges, cells.y),
    ):
        assert len(edges) == len(values) + 1
        assert all(a < v < b for a, v, b in zip(edges, values, edges[1:], strict=False))
        ticks = [position for position, _ in axis.ticks]
        assert set(ticks) <= set(map(float, values))
        assert ticks[0] == values[0]
        assert (np.diff(ticks) >= 0.06 * values[-1]).all()
        assert all(label == f"{int(position):,}" for position, label in axis.ticks)


def test_cells_are_medians_over_seeds_and_data_has_every_run():
    plot = draw(SMALL)
    (cells,) = plot.panels
    for y, width in enumerate(SMALL.widths):
        for x, heads in enumerate(SMALL.heads):
            parameters = 32 * heads + 8 * width
            assert cells.values[y][x] == pytest.approx(min(1.0, parameters / 140))
            assert cells.texts[y][x] == f"{100 * min(1.0, parameters / 140):.0f}%"
            text = f"{heads} heads, {width} neurons, {parameters} parameters"
            assert cells.hover_texts[y][x].startswith(text)
    assert len(plot.data.rows) == 3 * 2 * 3
    for row in plot.data.rows:
        values = dict(zip(plot.data.header, row, strict=True))
        assert values["attention"] == 4 * values["heads"] * 8
        assert values["mlp"] == 2 * values["width"] * 4
        assert values["parameters"] == values["attention"] + values["mlp"]
    assert column(plot, "seed") == [0, 1, 2] * 6
    assert "median over seeds 0, 1, 2" in plot.caption


def test_smallest_shape_that_stores_the_table_and_its_share_of_mlp():
    # 140 parameters are needed: of 4·8·H + 8·m only (4, 3) has as many, 152.
    parameters, share = smallest_stored(draw(replace(SMALL, seeds=(0, 1))))
    assert (parameters, share) == (152, pytest.approx(24 / 152))
    assert smallest_stored(draw(SMALL)) == (parameters, share), "the median over seeds counts"


def test_no_smallest_shape_if_nothing_is_stored():
    assert smallest_stored(draw(SMALL, lambda _: 0.98)) is None
    assert smallest_stored(draw(SMALL, lambda _: 0.99)) == (40, pytest.approx(8 / 40))


def test_frontier_is_scaled_to_the_table():
    """Per fact and per token, as the authors drew it for 1,024 facts and 64 tokens."""
    (line,) = draw(QUICK_MAP).panels[0].lines
    facts, tokens, dim = 15**2, 30, 16
    assert line.x[0] == pytest.approx(1280 / (64 * 32) * tokens * dim)
    for x, y in zip(line.x[1:], line.y[1:], strict=True):
        assert 2 * y + x == pytest.approx(4600 / 1024 * facts)


def test_matplotlib_draws_the_frontier():
    axes = draw_matplotlib(draw(SMALL)).axes[0]
    assert axes.get_xlim() == (pytest.approx(4.0), pytest.approx(40.0))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "the authors' frontier, scaled to this table"
    ]


def test_missing_runs_leave_cells_empty_and_are_counted_in_the_caption():
    figure = figure_4_right(shape_map=SMALL)
    tasks = figure.measurement.tasks
    results = [{"best_accuracy": accuracy_by_parameters(task.config)} for task in tasks]
    results[4] = {}  # m = 1 and H = 2, the second seed
    plot = figure.plot(results)
    (cells,) = plot.panels
    assert [[value is None for value in row] for row in cells.values] == [[0, 1, 0], [0, 0, 0]]
    assert cells.texts[0][1] == ""
    assert cells.hover_texts[0][1].endswith("not measured")
    assert all("accuracy" in text and text.endswith("%") for text in cells.hover_texts[1])
    assert plot.caption.endswith("So far 17 of 18 runs are finished.")
    assert column(plot, "best_accuracy")[4] is None
    draw_matplotlib(plot)
    with pytest.raises(FactmemError, match="none of its runs is finished"):
        figure.draw({})


# ---- the claim -----------------------------------------------------------------------------------


def train_briefly(monkeypatch):
    protocol = replace(training.QUICK, learning_rates=(1e-9,), steps=128)
    monkeypatch.setattr(training, "QUICK", protocol)


BROKEN = {"attention-against-mlp": (lambda: attention_against_mlp([0]), train_briefly)}


@pytest.mark.slow  # training takes minutes, or seconds on an idle machine
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path):
    assert_holds_and_fails_when_broken(*BROKEN["attention-against-mlp"], monkeypatch, tmp_path)
