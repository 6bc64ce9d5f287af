"""Figures drawn by matplotlib."""

import io
import math

import numpy as np
import pytest
from tests.plotting import samples

from factmem.plotting import draw_matplotlib
from factmem.plotting.plot import Axis, Chart, HeatMap, Level, Line, Note, Span

HOSTILE = ("$5 & <b>", "$\\frac$ for 5", "a_b^c $x$", "%{x}")


def draw(*panels, **fields):
    return draw_matplotlib(samples.plot(*panels, **fields))


def chart(*lines, **fields):
    axes = {"x": Axis("size", "log"), "y": Axis("facts", "log")}
    lines = lines or (Line("a", (1.0, 10.0, 100.0), (2.0, 20.0, 200.0)),)
    return Chart(**(axes | fields), lines=lines)


def heat_map(**fields):
    cells = {
        "x": Axis("heads", ticks=((1.0, "one"), (2.0, "two"), (3.0, "three"))),
        "y": Axis("neurons"),
        "x_edges": (0.5, 1.5, 2.5, 3.5),
        "y_edges": (0.0, 10.0, 30.0),
        "values": ((0.0, 0.5, 1.0), (0.25, None, 0.75)),
        "value_label": "accuracy",
    }
    return HeatMap(**(cells | fields))


def render(figure):
    """Render the figure; text that is parsed as mathematics fails here."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    return file.getvalue()


def all_texts(figure):
    from matplotlib.text import Text

    return {text.get_text() for text in figure.findobj(Text)}


def test_charts_have_points_labels_scales_and_titles():
    line = Line("a", (1.0, 10.0, 100.0), (2.0, 20.0, 200.0))
    figure = draw(chart(line, title="left", y=Axis("loss")), title="both")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("size", "loss", "left")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert figure.get_suptitle() == "both"
    assert list(axes.lines[0].get_xdata()) == [1, 10, 100]
    assert list(axes.lines[0].get_ydata()) == [2, 20, 200]
    assert axes.get_legend() is None, "one line needs no name"


def test_error_bars_span_the_range():
    line = Line("a", (1.0, 10.0), (2.0, 20.0), (1.5, 20.0), (4.0, 30.0))
    (axes,) = draw(chart(line)).axes
    (bars,) = axes.collections
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [[1.5, 4.0], [20.0, 30.0]])
    low, high = axes.get_ylim()
    assert low < 1.5
    assert high > 30


def test_custom_ticks_are_drawn():
    ticks = ((8.0, "eight"), (64.0, "$64"), (512.0, "many"))
    line = Line("a", (8.0, 512.0), (1.0, 2.0))
    figure = draw(chart(line, x=Axis("d", "log", ticks)))
    render(figure)
    axis = figure.axes[0].xaxis
    assert axis.get_majorticklocs().tolist() == [8, 64, 512]
    assert [label.get_text() for label in axis.get_majorticklabels()] == ["eight", "$64", "many"]
    assert len(axis.get_minorticklocs()) == 0


def test_logarithmic_ticks_are_plain_numbers():
    figure = draw(chart(Line("a", (10.0, 1e5), (0.01, 1.0))))
    render(figure)
    (axes,) = figure.axes
    labels = {label.get_text() for label in axes.get_xticklabels()}
    assert {"10", "1,000", "100,000"} <= labels
    assert "0.01" in {label.get_text() for label in axes.get_yticklabels()}


def test_short_logarithmic_axes_have_ticks_at_2_and_5():
    short, long = (draw(chart(Line("a", (10.0, end), (1.0, 2.0)))) for end in (60.0, 1e6))
    labels = [
        {label.get_text() for label in figure.axes[0].get_xticklabels(minor=True)} - {""}
        for figure in (short, long)
    ]
    assert {"20", "50"} <= labels[0]
    assert not labels[0] & {"30", "40", "60"}
    assert labels[1] == set()


@pytest.mark.parametrize("low", [0.3, 1.0, 1.3, 2.0, 2.3, 6.0, 900.0, 1e6])
@pytest.mark.parametrize("factor", [1.001, 1.25, 1.9, 3.0, 4.5, 7.0])
def test_visible_labels_of_logarithmic_axes_are_true_and_at_least_two(low, factor):
    figure = draw(chart(Line("a", (1.0, 2.0), (low, factor * low))))
    (axes,) = figure.axes
    bottom, top = axes.get_ylim()
    labels = [
        (label.get_text(), label.get_position()[1]) for label in axes.get_yticklabels(which="both")
    ]
    labels = {text: y for text, y in labels if text and bottom <= y <= top}
    assert len(labels) >= 2
    for text, value in labels.items():
        assert float(text.replace(",", "")) == pytest.approx(value, rel=1e-5)


def test_limits_fit_measured_lines_and_not_references():
    measured = Line("a", (10.0, 100.0), (1.0, 5.0), (0.5, 5.0), (1.0, 8.0))
    reference = Line("theory", (1e-3, 1e9), (1e-3, 1e9), kind="reference")
    (axes,) = draw(chart(measured, reference)).axes
    assert 5 < axes.get_xlim()[0] < 10
    assert 100 < axes.get_xlim()[1] < 200
    assert 0.2 < axes.get_ylim()[0] < 0.5
    assert 8 < axes.get_ylim()[1] < 16
    assert len(axes.lines) >= 2


def test_linear_axes_start_at_zero_if_values_are_near_it():
    line = Line("loss", (0.0, 10.0), (3.0, 0.01), kind="curve")
    (axes,) = draw(chart(line, x=Axis("steps"), y=Axis("loss"))).axes
    assert axes.get_xlim()[0] == axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] == pytest.approx(3 + 0.04 * 2.99)


def test_levels_are_visible_and_named():
    levels = (Level("ln $32", math.log(32)), Level("far", 500.0))
    figure = draw(chart(y=Axis("loss"), levels=levels))
    (axes,) = figure.axes
    heights = [line.get_ydata()[0] for line in axes.lines[1:]]
    assert heights == [math.log(32), 500]
    assert axes.get_ylim()[1] > 500
    assert {"ln $32", "far"} <= all_texts(figure)


def test_spans_are_shaded_and_named():
    spans = (Span("first", 1.0, 20.0), Span("second", 20.0, 100.0))
    figure = draw(chart(x=Axis("steps"), spans=spans))
    shaded = [(p.get_x(), p.get_x() + p.get_width()) for p in figure.axes[0].patches]
    assert shaded == [(1, 20), (20, 100)]
    assert {"first", "second"} <= all_texts(figure)


def test_every_line_is_in_the_legend_and_differs_in_grayscale():
    lines = [Line(f"l{k}", (1.0, 2.0), (1.0 + k, 2.0 + k)) for k in range(4)]
    (axes,) = draw(chart(*lines, Line("ref", (1.0, 2.0), (1.0, 2.0), kind="reference"))).axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["l0", "l1", "l2", "l3", "ref"]
    markers = [line.get_marker() for line in axes.lines]
    assert len(set(markers[:4])) == 4
    assert markers[4] == "None"
    assert axes.lines[4].get_linestyle() == "--"


def test_charts_without_points_are_drawn():
    assert render(draw(chart(Line("nothing", (), ())))).startswith(b"\x89PNG")
    empty = Line("nothing", (), (), (), ())
    assert render(draw(chart(empty, empty))).startswith(b"\x89PNG")


def test_heat_maps_have_cells_limits_and_a_color_bar():
    figure = draw(heat_map(lines=(Line("frontier", (1.0, 3.0), (5.0, 25.0), kind="reference"),)))
    axes, bar = figure.axes
    (mesh,) = axes.collections
    values = mesh.get_array()
    np.testing.assert_array_equal(values.filled(-1).ravel(), [0, 0.5, 1, 0.25, -1, 0.75])
    assert mesh.get_clim() == (0, 1)
    assert (axes.get_xlim(), axes.get_ylim()) == ((0.5, 3.5), (0.0, 30.0))
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == (
        "heads",
        "neurons",
        "accuracy",
    )
    render(figure)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["one", "two", "three"]
    assert list(axes.lines[0].get_xdata()) == [1, 3]


def test_categories_have_a_legend_and_no_color_bar():
    categories = ("subject", "relation", "noise")
    values = ((0.0, 1.0, 2.0), (2.0, 1.0, 0.0))
    figure = draw(heat_map(values=values, categories=categories))
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(categories)
    (mesh,) = axes.collections
    colors = mesh.cmap(mesh.norm(mesh.get_array()))
    assert len({tuple(c) for c in np.reshape(colors, (-1, 4))}) == 3
    patches = [tuple(patch.get_facecolor()) for patch in axes.get_legend().get_patches()]
    assert [tuple(c) for c in np.reshape(colors, (2, 3, 4))[0]] == patches


def test_texts_are_in_the_middle_of_their_cells():
    texts = (("a", "$b", "c"), ("d", "e", "f"))
    (axes, _) = draw(heat_map(texts=texts)).axes
    positions = {text.get_text(): text.get_position() for text in axes.texts}
    assert positions["a"] == (1.0, 5.0)
    assert positions["$b"] == (2.0, 5.0)
    assert positions["f"] == (3.0, 20.0)


def test_panels_fill_rows_and_spare_axes_are_hidden():
    figure = draw(chart(), chart(), chart(), columns=2)
    assert [axes.axison for axes in figure.axes] == [True, True, True, False]
    assert len(draw(chart(), columns=4).axes) == 1


def test_a_long_title_is_broken_into_lines_that_fit():
    title = "16 subjects, 4 relations, 8 answers each, softmax attention, sgd, " * 3
    figure = draw(chart(), title=title)
    figure.draw_without_rendering()
    (text,) = [text for text in figure.texts if "softmax" in text.get_text()]
    assert text.get_text().split() == title.split()
    extent = text.get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1


def test_all_text_is_plain_text():
    """Rendering `$\\frac$` as mathematics would fail."""
    names = HOSTILE
    lines = [Line(name, (1.0, 2.0), (1.0 + k, 2.0)) for k, name in enumerate(names)]
    left = Chart(
        Axis(names[0], "log", ((1.0, names[1]), (2.0, names[2]))),
        Axis(names[1]),
        tuple(lines),
        title=names[2],
        levels=(Level(names[1], 1.5),),
        spans=(Span(names[1], 1.0, 2.0),),
    )
    right = heat_map(
        x=Axis(names[1], ticks=((1.0, names[0]), (2.0, names[1]))),
        title=names[1],
        texts=((names[0], names[1], names[2]), ("", names[3], "")),
    )
    figure = draw(left, right, title=names[1])
    render(figure)
    assert set(names) <= all_texts(figure)


def test_color_bars_and_categories_are_plain_text():
    figure = draw(heat_map(value_label=HOSTILE[1]))
    render(figure)
    assert HOSTILE[1] in all_texts(figure)
    values = ((0.0, 1.0, 0.0), (1.0, 0.0, 1.0))
    figure = draw(heat_map(values=values, categories=HOSTILE[1:3]))
    render(figure)
    assert set(HOSTILE[1:3]) <= all_texts(figure)


def test_hostile_names_are_drawn_literally():
    figure = draw_matplotlib(samples.hostile())
    render(figure)
    assert {samples.BOLD, samples.SCRIPT, samples.TEMPLATE} <= all_texts(figure)


def test_the_global_style_is_unchanged():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw(chart())
    assert dict(mpl.rcParams) == before


def test_limits_of_axes_are_respected():
    x, y = Axis("x", "log", limits=(0.5, 1000.0)), Axis("y", limits=(0.0, None))
    (axes,) = draw(chart(x=x, y=y)).axes
    assert axes.get_xlim() == (0.5, 1000)
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 200


def test_points_have_markers_and_no_line():
    line = Line("a", (1.0, 10.0), (2.0, 20.0), kind="points", x_low=(0.5, 9.0), x_high=(1.0, 40.0))
    (axes,) = draw(chart(line)).axes
    (bars,) = axes.collections
    ends = [segment[:, 0].tolist() for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [[0.5, 1.0], [9.0, 40.0]])
    assert axes.lines[0].get_linestyle() == "None"
    assert axes.lines[0].get_marker() == "o"
    assert axes.get_xlim()[0] < 0.5
    assert axes.get_xlim()[1] > 40


def test_references_of_a_group_share_a_dash_pattern():
    names = (("a", ""), ("b1", "b"), ("b2", "b"))
    lines = [
        Line(name, (1.0, 2.0), (1.0, 2.0), kind="reference", group=group) for name, group in names
    ]
    (axes,) = draw(chart(*lines)).axes
    first, second, third = (line._dash_pattern for line in axes.lines)
    assert first != second == third


def test_lines_may_be_left_out_of_the_legend():
    lines = [Line(name, (1.0, 2.0), (1.0, 2.0), in_legend=name != "c") for name in "abc"]
    (axes,) = draw(chart(*lines)).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]


def test_panels_may_share_a_legend():
    lines = [Line(name, (1.0, 2.0), (1.0, 2.0)) for name in "abc"]
    figure = draw(chart(*lines[:2]), chart(*lines[1:]), shared_legend=True)
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    (legend,) = figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == ["a", "b", "c"]


def test_notes_are_plain_text_at_their_points():
    figure = draw(chart(notes=(Note(HOSTILE[1], 10.0, 20.0),)))
    render(figure)
    (note,) = figure.axes[0].texts
    assert (note.get_text(), note.xy) == (HOSTILE[1], (10, 20))


def test_brackets_are_drawn_above_the_chart():
    spans, brackets = (Span("first", 1.0, 60.0),), (Span(HOSTILE[1], 1.0, 80.0),)
    figure = draw(
        chart(
            x=Axis("steps", limits=(0.0, 100.0)), spans=spans, spans_label="ours",
            brackets=brackets, brackets_label=HOSTILE[2],
        )
    )  # fmt: skip
    render(figure)
    (axes,) = figure.axes
    bracket = axes.lines[-1]
    np.testing.assert_allclose(bracket.get_xdata(), [0.01, 0.8])
    assert all(height > 1 for height in bracket.get_ydata())
    assert {"first", "ours", HOSTILE[1], HOSTILE[2]} <= all_texts(figure)


def test_color_bars_have_custom_ticks():
    figure = draw(heat_map(value_ticks=((0.0, "none"), (1.0, HOSTILE[1]))))
    render(figure)
    _, bar = figure.axes
    assert [label.get_text() for label in bar.get_yticklabels()] == ["none", HOSTILE[1]]
