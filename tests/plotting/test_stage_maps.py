"""What the maps of stages hold; how they look was looked at."""

import numpy as np
import pytest

from factmem.plotting.stage_maps import Cell, learning_order, softmax_stages, stage_map

CELLS = [
    Cell(8, 4, 1.3, "relations", 0.2, 0.4),
    Cell(8, 4, 1.5, "relations", 0.4, 0.6, marginal_first=True),
    Cell(8, 8, 1.0, None, 0.0, 0.0),
    Cell(16, 4, 2.6, "relations", 0.5, 0.7),
    Cell(4, 8, 0.5, "subjects", 0.1, 0.3),
]


def test_cells_say_which_stage_and_for_how_long():
    left, _ = stage_map(CELLS, 8, "title").axes
    found = {text.get_position(): text.get_text() for text in left.texts}
    # Columns are S = 4, 8, 16; rows are R = 4, 8.
    assert found == {
        (0, 1): "10 %\nsubjects",
        (1, 0): "30 %",
        (1, 1): "none",
        (2, 0): "50 %",
    }
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["4", "8", "16"]
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["4", "8"]


def test_the_line_is_where_both_rates_are_equal():
    left, _ = stage_map(CELLS, 8).axes
    line = next(line for line in left.lines if line.get_linestyle() == "--")
    subjects, relations = 4 * 2.0 ** line.get_xdata(), 4 * 2.0 ** line.get_ydata()
    # λ_r = √((R − 1)/(RD))/R and λ_s = √((D − 1)/(RD))/S.
    of_relations = np.sqrt((relations - 1) / (8 * relations)) / relations
    of_subjects = np.sqrt(7 / (8 * relations)) / subjects
    assert np.allclose(of_relations, of_subjects)


def test_a_dot_marks_tables_whose_marginal_is_learned_first():
    left, _ = stage_map(CELLS, 8).axes
    dots = [line for line in left.lines if line.get_marker() == "."]
    assert [(round(dot.get_xdata()[0]), round(dot.get_ydata()[0])) for dot in dots] == [(1, 0)]


def test_stages_stand_beside_what_rates_predict():
    _, right = stage_map(CELLS, 8).axes
    lines = {line.get_label(): line for line in right.lines}
    assert list(lines["relations alone"].get_xdata()) == [1.3, 1.5, 2.6]
    assert list(lines["relations alone"].get_ydata()) == [0.4, 0.6, 0.7]
    assert list(lines["subjects alone"].get_ydata()) == [0.3]
    expected = lines["small α, predicted"]
    at = dict(zip(expected.get_xdata().round(6), expected.get_ydata(), strict=True))
    assert at[0.25] == pytest.approx(0.75)
    assert at[64.0] == pytest.approx(1 - 1 / 64)


def test_learning_times_are_drawn_against_chances():
    laws = {"uniform": ([0.5, 0.5], [7.0, 7.0]), "Zipf 1": ([0.8, 0.2], [3.0, 9.0])}
    figure = learning_order({"structured facts": laws, "random facts": laws}, "$t$")
    for axes, name in zip(figure.axes, ("structured facts", "random facts"), strict=True):
        assert axes.get_title() == name
        lines = {line.get_label(): line for line in axes.lines}
        assert list(lines["Zipf 1"].get_ydata()) == [3.0, 9.0]
        guide = lines["time ∝ 1 / chance"]
        assert np.allclose(np.multiply(guide.get_xdata(), guide.get_ydata()), 3.5)


def test_every_seed_of_a_softmax_head_is_a_line():
    runs = [([0.0, 1.0, 2.0], [3.0, 2.0, 1.0]), ([0.0, 1.0, 2.0], [3.0, 1.0, 0.5])]
    figure = softmax_stages({"d = 8": runs, "d = 16": runs[:1]}, {"ln 8": np.log(8)})
    first, second = figure.axes
    assert (
        sum(len(line.get_xdata()) == 2 and line.get_xdata()[0] == 1.0 for line in first.lines) == 2
    )
    assert [text.get_text() for text in second.texts] == ["ln 8"]
