"""What matplotlib is given to draw; how it looks was looked at."""

import io
import math

import numpy as np
import pytest
from tests.paper.made import simple_plot
from tests.report import made

from factmem.plotting.matplotlib_backend import printed
from factmem.plotting.plot import Axis, Chart, HeatMap, Level, Line, Span

HOSTILE = ("$5 & <b>", "$\\frac$ for 5", "a_b^c $x$", "%{x}")


def of(*panels, **given):
    return printed(simple_plot(panels=panels, **given))


def chart(*lines, **given):
    axes = {"x": Axis("size", "log"), "y": Axis("facts", "log")}
    lines = lines or (Line("a", (1.0, 10.0, 100.0), (2.0, 20.0, 200.0)),)
    return Chart(**(axes | given), lines=lines)


def heat_map(**given):
    cells = {
        "x": Axis("heads", ticks=((1.0, "one"), (2.0, "two"), (3.0, "three"))),
        "y": Axis("neurons"),
        "x_edges": (0.5, 1.5, 2.5, 3.5),
        "y_edges": (0.0, 10.0, 30.0),
        "values": ((0.0, 0.5, 1.0), (0.25, None, 0.75)),
        "unit": "accuracy",
    }
    return HeatMap(**(cells | given))


def as_bytes(figure):
    """Drawn in full: text that is taken for mathematics fails here."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    return file.getvalue()


def all_texts(figure):
    from matplotlib.text import Text

    return {text.get_text() for text in figure.findobj(Text)}


def test_a_chart_has_its_points_labels_scales_and_title():
    line = Line("a", (1.0, 10.0, 100.0), (2.0, 20.0, 200.0))
    figure = of(chart(line, title="left", y=Axis("loss")), title="whole")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("size", "loss", "left")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert figure.get_suptitle() == "whole"
    assert list(axes.lines[0].get_xdata()) == [1, 10, 100]
    assert list(axes.lines[0].get_ydata()) == [2, 20, 200]
    assert axes.get_legend() is None, "one line needs no name"


def test_bars_reach_from_the_least_to_the_most_over_seeds():
    line = Line("a", (1.0, 10.0), (2.0, 20.0), (1.5, 20.0), (4.0, 30.0))
    (axes,) = of(chart(line)).axes
    (bars,) = axes.collections
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [[1.5, 4.0], [20.0, 30.0]])
    low, high = axes.get_ylim()
    assert low < 1.5
    assert high > 30


def test_ticks_stand_where_they_are_told_to():
    ticks = ((8.0, "eight"), (64.0, "$64"), (512.0, "many"))
    line = Line("a", (8.0, 512.0), (1.0, 2.0))
    figure = of(chart(line, x=Axis("d", "log", ticks)))
    as_bytes(figure)
    axis = figure.axes[0].xaxis
    assert axis.get_majorticklocs().tolist() == [8, 64, 512]
    assert [label.get_text() for label in axis.get_majorticklabels()] == ["eight", "$64", "many"]
    assert len(axis.get_minorticklocs()) == 0


def test_logarithmic_ticks_are_plain_numbers():
    figure = of(chart(Line("a", (10.0, 1e5), (0.01, 1.0))))
    as_bytes(figure)
    (axes,) = figure.axes
    named = {label.get_text() for label in axes.get_xticklabels()}
    assert {"10", "1,000", "100,000"} <= named
    assert "0.01" in {label.get_text() for label in axes.get_yticklabels()}


def test_short_logarithmic_axes_have_ticks_at_2_and_5():
    short, long = (of(chart(Line("a", (10.0, end), (1.0, 2.0)))) for end in (60.0, 1e6))
    named = [
        {label.get_text() for label in figure.axes[0].get_xticklabels(minor=True)} - {""}
        for figure in (short, long)
    ]
    assert {"20", "50"} <= named[0]
    assert not named[0] & {"30", "40", "60"}
    assert named[1] == set()


def test_what_was_measured_decides_what_is_in_sight():
    measured = Line("a", (10.0, 100.0), (1.0, 5.0), (0.5, 5.0), (1.0, 8.0))
    reference = Line("theory", (1e-3, 1e9), (1e-3, 1e9), kind="reference")
    (axes,) = of(chart(measured, reference)).axes
    assert 5 < axes.get_xlim()[0] < 10
    assert 100 < axes.get_xlim()[1] < 200
    assert 0.2 < axes.get_ylim()[0] < 0.5
    assert 8 < axes.get_ylim()[1] < 16
    assert len(axes.lines) >= 2


def test_linear_axes_of_losses_begin_at_nothing():
    line = Line("loss", (0.0, 10.0), (3.0, 0.01), kind="curve")
    (axes,) = of(chart(line, x=Axis("steps"), y=Axis("loss"))).axes
    assert axes.get_xlim()[0] == axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] == pytest.approx(3 + 0.04 * 2.99)


def test_levels_are_in_sight_and_named():
    chosen = chart(y=Axis("loss"), levels=(Level("ln $32", math.log(32)), Level("far", 500.0)))
    figure = of(chosen)
    (axes,) = figure.axes
    heights = [line.get_ydata()[0] for line in axes.lines[1:]]
    assert heights == [math.log(32), 500]
    assert axes.get_ylim()[1] > 500
    assert {"ln $32", "far"} <= all_texts(figure)


def test_spans_are_shaded_and_named():
    spans = (Span("first", 1.0, 20.0), Span("second", 20.0, 100.0))
    figure = of(chart(x=Axis("steps"), spans=spans))
    found = [(p.get_x(), p.get_x() + p.get_width()) for p in figure.axes[0].patches]
    assert found == [(1, 20), (20, 100)]
    assert {"first", "second"} <= all_texts(figure)


def test_every_line_is_in_the_legend_and_told_apart_without_colors():
    lines = [Line(f"l{k}", (1.0, 2.0), (1.0 + k, 2.0 + k)) for k in range(4)]
    (axes,) = of(chart(*lines, Line("ref", (1.0, 2.0), (1.0, 2.0), kind="reference"))).axes
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["l0", "l1", "l2", "l3", "ref"]
    markers = [line.get_marker() for line in axes.lines]
    assert len(set(markers[:4])) == 4
    assert markers[4] == "None"
    assert axes.lines[4].get_linestyle() == "--"


def test_a_chart_without_points_is_still_drawn():
    assert as_bytes(of(chart(Line("nothing", (), ())))).startswith(b"\x89PNG")
    empty = Line("nothing", (), (), (), ())
    assert as_bytes(of(chart(empty, empty))).startswith(b"\x89PNG")


def test_a_map_has_its_cells_limits_and_scale_of_colors():
    figure = of(heat_map(lines=(Line("frontier", (1.0, 3.0), (5.0, 25.0), kind="reference"),)))
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
    as_bytes(figure)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["one", "two", "three"]
    assert list(axes.lines[0].get_xdata()) == [1, 3]


def test_a_map_of_kinds_names_them_and_has_no_scale():
    kinds = ("subject", "relation", "noise")
    values = ((0.0, 1.0, 2.0), (2.0, 1.0, 0.0))
    figure = of(heat_map(values=values, kinds=kinds))
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(kinds)
    (mesh,) = axes.collections
    colors = mesh.cmap(mesh.norm(mesh.get_array()))
    assert len({tuple(c) for c in np.reshape(colors, (-1, 4))}) == 3
    patches = [tuple(patch.get_facecolor()) for patch in axes.get_legend().get_patches()]
    assert [tuple(c) for c in np.reshape(colors, (2, 3, 4))[0]] == patches


def test_texts_stand_in_the_middles_of_their_cells():
    texts = (("a", "$b", "c"), ("d", "e", "f"))
    (axes, _) = of(heat_map(texts=texts)).axes
    found = {text.get_text(): text.get_position() for text in axes.texts}
    assert found["a"] == (1.0, 5.0)
    assert found["$b"] == (2.0, 5.0)
    assert found["f"] == (3.0, 20.0)


def test_panels_stand_in_rows_and_spare_places_are_empty():
    figure = of(chart(), chart(), chart(), columns=2)
    assert [axes.axison for axes in figure.axes] == [True, True, True, False]
    assert len(of(chart(), columns=4).axes) == 1


def test_text_is_text_and_nothing_else():
    """As bytes, so that everything is laid out: `$\\frac$` would fail."""
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
    figure = of(left, right, title=names[1])
    as_bytes(figure)
    assert set(names) <= all_texts(figure)


def test_color_bars_and_kinds_are_text_too():
    figure = of(heat_map(unit=HOSTILE[1]))
    as_bytes(figure)
    assert HOSTILE[1] in all_texts(figure)
    kinds = of(heat_map(values=((0.0, 1.0, 0.0), (1.0, 0.0, 1.0)), kinds=HOSTILE[1:3]))
    as_bytes(kinds)
    assert set(HOSTILE[1:3]) <= all_texts(kinds)


def test_a_hostile_report_is_drawn_as_it_is():
    figure = printed(made.hostile())
    as_bytes(figure)
    assert {made.BOLD, made.SCRIPT, made.TEMPLATE} <= all_texts(figure)


def test_nothing_of_the_style_is_left_behind():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    of(chart())
    assert dict(mpl.rcParams) == before
