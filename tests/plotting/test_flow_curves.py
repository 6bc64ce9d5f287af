"""Plots of learning curves with their stages."""

from itertools import pairwise

import numpy as np
import pytest
from tests.plotting.sample_curves import POPULATION, TIMES, curves

from factmem.dynamics import PromptPopulation, find_stages
from factmem.facts import FactTable
from factmem.paper.loss_figure import AUTHORS_STAGES
from factmem.plotting import draw_matplotlib, flow_curves


def plot_of(losses, population=POPULATION, **options):
    return flow_curves(losses, find_stages(losses, population), population, **options)


def chart_of(losses, *args, **options):
    (chart,) = plot_of(losses, *args, **options).panels
    return chart


def test_shows_all_three_losses():
    losses = curves()
    lines = {line.name: line for line in chart_of(losses).lines}
    for name, values in (
        ("total", losses.loss),
        ("relation loss", losses.statistics.relation_loss),
        ("subject loss", losses.statistics.subject_loss),
    ):
        assert np.array_equal(lines[name].y, values)
        assert np.array_equal(lines[name].x, TIMES)


def test_spans_are_the_stages():
    losses = curves()
    stages = find_stages(losses, POPULATION)
    spans = chart_of(losses).spans
    ends = [0, stages.init_end, stages.hallucination_end, 800]
    assert [(span.start, span.end) for span in spans] == list(pairwise(ends))
    assert [span.name for span in spans] == ["initialization", "hallucination", "convergence"]
    (axes,) = draw_matplotlib(plot_of(losses)).axes
    shaded = sorted((p.get_x(), p.get_x() + p.get_width()) for p in axes.patches)
    assert np.allclose(shaded, list(pairwise(ends)))


def test_curves_without_stages_have_no_spans():
    assert chart_of(curves((100, 200), (100, 200))).spans == ()


def test_a_stage_that_has_not_ended_reaches_the_end():
    spans = chart_of(curves(subjects=(900, 1000))).spans
    assert [span.name for span in spans] == ["initialization", "hallucination"]
    assert spans[-1].end == 800


def test_brackets_show_the_stages_of_the_authors():
    assert chart_of(curves()).brackets == ()
    plot = plot_of(curves(), reference_stages=AUTHORS_STAGES)
    (chart,) = plot.panels
    assert [span.end for span in chart.brackets] == [*AUTHORS_STAGES[:2], 800.0]
    assert AUTHORS_STAGES == (1800 * 0.1, 5000 * 0.1, 8192 * 0.1)
    (axes,) = draw_matplotlib(plot).axes
    assert {"authors", "ours"} <= {text.get_text() for text in axes.texts}
    ends = [line.get_xdata()[-1] for line in axes.lines if line.get_marker() == "|"]
    assert ends == pytest.approx([180 / 800, 500 / 800, 1.0])


def test_stages_of_the_authors_beyond_the_end_are_left_out():
    losses = curves()
    short = type(losses)(
        losses.times[:50], type(losses.statistics)(*(v[:50] for v in losses.statistics))
    )
    (bracket,) = chart_of(short, reference_stages=AUTHORS_STAGES).brackets
    assert (bracket.name, bracket.start, bracket.end) == ("initialization", 0.0, TIMES[49])


def test_the_exact_flow_is_a_reference_up_to_the_end():
    losses = curves()
    longer = type(losses)(2 * TIMES, losses.statistics)
    line = chart_of(losses, exact_flow=longer).lines[-1]
    assert (line.name, line.kind) == ("total, exact flow", "reference")
    assert line.x[-1] == 800
    assert np.array_equal(line.y, losses.loss[:201])


def test_logarithmic_time_covers_three_decades():
    (axes,) = draw_matplotlib(
        plot_of(curves(), log_time=True, reference_stages=AUTHORS_STAGES)
    ).axes
    assert axes.get_xlim() == (0.8, 800.0)
    assert axes.get_xscale() == "log"
    convergence = next(text for text in axes.texts if text.get_text() == "convergence")
    start = find_stages(curves(), POPULATION).hallucination_end
    middle = np.log((start * 800) ** 0.5 / 0.8) / np.log(1000)
    assert convergence.get_position()[0] == pytest.approx(middle)


def test_levels_are_named_after_their_entropy():
    assert [level.name for level in chart_of(curves()).levels] == ["ln 32", "ln 8"]
    uneven = PromptPopulation.from_table(FactTable.random(16, 4, 8))
    assert [level.name for level in chart_of(curves(), uneven).levels] == ["ln 32", "H(a | r)"]


def test_the_title_is_plain_text():
    figure = draw_matplotlib(plot_of(curves(), title="$x^2$ <b>"))
    assert not figure._suptitle.get_parse_math()
