"""Maps of the stages of training."""

import numpy as np
import pytest

from factmem.plotting import draw_matplotlib
from factmem.plotting.stage_maps import TableStage, learning_order, softmax_losses, stage_map

STAGES = [
    TableStage(8, 4, 1.3, "relations", 0.2, 0.4),
    TableStage(8, 4, 1.5, "relations", 0.4, 0.6, marginal_first=True),
    TableStage(8, 8, 1.0, None, 0.0, 0.0),
    TableStage(16, 4, 2.6, "relations", 0.5, 0.7),
    TableStage(4, 8, 0.5, "subjects", 0.1, 0.3),
]


def lines_by_name(panel):
    return {line.name: line for line in panel.lines}


def test_cells_show_the_stage_and_its_fraction():
    heat_map, _ = stage_map(STAGES, 8, "title").panels
    # Columns are S = 4, 8, 16; rows are R = 4, 8.
    assert heat_map.texts == (("", "30%", "50%"), ("10%\nsubjects", "none", ""))
    assert [name for _, name in heat_map.x.ticks] == ["4", "8", "16"]
    assert [name for _, name in heat_map.y.ticks] == ["4", "8"]
    assert heat_map.values[0] == (None, pytest.approx(-0.3), -0.5)
    assert heat_map.values[1] == (0.1, 0.0, None)


def test_texts_are_in_the_middle_of_their_cells():
    axes = draw_matplotlib(stage_map(STAGES, 8)).axes[0]
    positions = {text.get_text(): text.get_position() for text in axes.texts if text.get_text()}
    assert positions["50%"] == pytest.approx((16, 4))
    assert positions["10%\nsubjects"] == pytest.approx((4, 8))


def test_the_line_is_where_both_rates_are_equal():
    heat_map, _ = stage_map(STAGES, 8).panels
    line = lines_by_name(heat_map)["equal rates"]
    subjects, relations = np.array(line.x), np.array(line.y)
    # λ_r = √((R − 1)/(RD))/R and λ_s = √((D − 1)/(RD))/S.
    relation_rate = np.sqrt((relations - 1) / (8 * relations)) / relations
    subject_rate = np.sqrt(7 / (8 * relations)) / subjects
    assert np.allclose(relation_rate, subject_rate)


def test_a_dot_marks_tables_whose_marginal_is_learned_first():
    heat_map, _ = stage_map(STAGES, 8).panels
    dots = lines_by_name(heat_map)["noise or EOS is learned first"]
    ((x, y),) = zip(dots.x, dots.y, strict=True)
    assert 8 < x < 8 * 2**0.5
    assert 4 < y < 4 * 2**0.5
    plain, _ = stage_map(STAGES[2:], 8).panels
    assert list(lines_by_name(plain)) == ["equal rates"]


def test_stages_are_compared_with_the_prediction_from_rates():
    _, chart = stage_map(STAGES, 8).panels
    lines = lines_by_name(chart)
    assert lines["relations alone"].x == (1.3, 1.5, 2.6)
    assert lines["relations alone"].y == (0.4, 0.6, 0.7)
    assert lines["subjects alone"].y == (0.3,)
    assert lines["no such stage"].y == (0.0,)
    predicted = lines["prediction for small α"]
    values = dict(zip(np.round(predicted.x, 6), predicted.y, strict=True))
    assert values[0.25] == pytest.approx(0.75)
    assert values[64.0] == pytest.approx(1 - 1 / 64)


def test_learning_times_are_shown_against_probabilities():
    laws = {"uniform": ([0.5, 0.5], [7.0, 7.0]), "Zipf 1": ([0.8, 0.2], [3.0, 9.0])}
    panels = learning_order({"structured facts": laws, "random facts": laws}, "$t$").panels
    assert [panel.title for panel in panels] == ["structured facts", "random facts"]
    for panel in panels:
        lines = lines_by_name(panel)
        assert lines["Zipf 1"].y == (3.0, 9.0)
        guide = lines["time ∝ 1 / probability"]
        assert np.allclose(np.multiply(guide.x, guide.y), 3.5)


def test_each_seed_of_a_softmax_head_is_a_line():
    runs = [([0.0, 1.0, 2.0], [3.0, 2.0, 1.0]), ([0.0, 1.0, 2.0], [3.0, 1.0, 0.5])]
    first, second = softmax_losses({"d = 8": runs, "d = 16": runs[:1]}, {"ln 8": np.log(8)}).panels
    assert [line.x for line in first.lines] == [(1.0, 2.0)] * 2, "time 0 has no logarithm"
    assert [line.y for line in first.lines] == [(2.0, 1.0), (1.0, 0.5)]
    assert len(second.lines) == 1
    assert [(level.name, level.y) for level in second.levels] == [("ln 8", np.log(8))]
