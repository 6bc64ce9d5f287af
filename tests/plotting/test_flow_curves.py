"""What the drawing of a flow holds; how it looks was looked at."""

from itertools import pairwise

import numpy as np
from tests.dynamics import made

from factmem.dynamics import Curves, Population, find_stages
from factmem.facts import FactTable
from factmem.plotting import flow_curves
from factmem.plotting.flow_curves import AUTHORS_STAGES

QUESTIONS = Population.of(FactTable.structured(16, 4, 8))
TIMES = np.linspace(0.0, 800.0, 401)


def curves(relations_at=(100, 200), subjects_at=(400, 500)):
    relation = np.log(4) * np.interp(TIMES, relations_at, [1, 0])
    subject = np.log(8) * np.interp(TIMES, subjects_at, [1, 0])
    return Curves(
        TIMES,
        made.seen(
            relation + subject,
            relation_loss=relation,
            subject_loss=subject,
            relation_gap=relation + np.log(8) - subject,
            subject_gap=subject + np.log(4) - relation,
        ),
    )


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def drawn(found, **more):
    return flow_curves(found, find_stages(found, QUESTIONS), QUESTIONS, **more)


def test_all_three_losses_are_drawn_as_they_are():
    found = curves()
    lines = {line.get_label(): line for line in drawn(found).axes[0].lines}
    for name, values in (
        ("total", found.loss),
        ("relation only", found.seen.relation_loss),
        ("subject only", found.seen.subject_loss),
    ):
        assert np.array_equal(lines[name].get_ydata(), values)
        assert np.array_equal(lines[name].get_xdata(), TIMES)


def test_stages_are_shaded_where_they_are():
    found = curves()
    stages = find_stages(found, QUESTIONS)
    spans = sorted(
        (patch.get_x(), patch.get_x() + patch.get_width()) for patch in drawn(found).axes[0].patches
    )
    ends = [0, stages.init_end, stages.hallucination_end, 800]
    assert np.allclose(spans, list(pairwise(ends)))


def test_a_curve_without_stages_has_none_shaded():
    figure = drawn(curves((100, 200), (100, 200)))
    assert len(figure.axes[0].patches) == 0
    assert "hallucination" not in texts(figure)


def test_a_stage_that_is_not_over_reaches_to_the_end():
    figure = drawn(curves(subjects_at=(900, 1000)))
    assert max(patch.get_x() + patch.get_width() for patch in figure.axes[0].patches) == 800
    assert "convergence" not in texts(figure)


def test_the_authors_stages_stand_beside_ours():
    assert "authors" not in texts(drawn(curves()))
    figure = drawn(curves(), authors=True)
    assert {"authors", "ours"} <= set(texts(figure))
    ends = [line.get_xdata()[-1] for line in figure.axes[0].lines if line.get_marker() == "|"]
    assert ends == [*AUTHORS_STAGES[:2], 800.0]
    assert AUTHORS_STAGES == (1800 * 0.1, 5000 * 0.1, 8192 * 0.1)


def test_logarithmic_times_cover_three_decades_without_a_warning():
    axes = drawn(curves(), logarithmic=True, authors=True).axes[0]
    assert axes.get_xlim() == (0.8, 800.0)
    assert axes.get_xscale() == "log"
    middle = {text.get_text(): text.get_position()[0] for text in axes.texts[::-1]}
    assert (
        middle["convergence"] == (find_stages(curves(), QUESTIONS).hallucination_end * 800) ** 0.5
    )


def test_levels_are_named_after_what_they_are():
    assert {"ln 32", "ln 8"} <= set(texts(drawn(curves())))
    uneven = Population.of(FactTable.random(16, 4, 8))
    found = curves()
    figure = flow_curves(found, find_stages(found, uneven), uneven)
    assert {"ln 32", "H(a | r)"} <= set(texts(figure))


def test_titles_are_text_and_nothing_else():
    figure = drawn(curves(), title="$x^2$ <b>")
    assert not figure._suptitle.get_parse_math()
