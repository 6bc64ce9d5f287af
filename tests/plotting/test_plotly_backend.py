"""What plotly is given; how it draws it is looked at in a browser."""

import html
import json
import math
import re
from dataclasses import replace

import pytest
from tests.report import made

from factmem.plotting import interactive
from factmem.plotting.plot import Axis, Level, Line, Span
from factmem.report.marks import COLORS, marks_of


def drawn(*panels):
    return interactive(made.plot(*panels))


def test_each_panel_is_a_figure_and_each_line_a_trace():
    plot = made.scaling()
    found = interactive(plot)
    assert [len(panel["data"]) for panel in found] == [len(each.lines) for each in plot.panels]
    assert {trace["type"] for panel in found for trace in panel["data"]} == {"scatter"}
    for panel, each in zip(found, plot.panels, strict=True):
        for trace, line in zip(panel["data"], each.lines, strict=True):
            assert (trace["name"], tuple(trace["x"])) == (line.name, line.x)
            assert trace["y"] == pytest.approx(line.y)


def test_kinds_of_lines_look_different():
    measured, fit, _, theory = drawn(made.scaling().panels[0])[0]["data"]
    (curve,) = drawn(made.chart(made.line("a", kind="curve")))[0]["data"]
    modes = [each["mode"] for each in (measured, fit, theory, curve)]
    assert modes == ["lines+markers", "lines", "lines", "lines"]
    assert theory["line"]["dash"] != "solid"
    assert theory["line"]["color"] not in {light for light, _ in COLORS}
    assert curve["line"]["width"] > fit["line"]["width"]
    assert fit["line"]["color"] == measured["line"]["color"]


def test_lines_differ_without_colors():
    names = [f"line {k}" for k in range(8)]
    marks = marks_of(made.plot(made.chart(*map(made.line, names))))
    assert len({(marks[name].symbol, marks[name].dash) for name in names}) == 8
    assert len({marks[name].color for name in names}) == 8


def test_lines_of_a_group_have_one_color_and_different_symbols():
    lines = [replace(made.line(f"{a}{b}"), group=a) for a in "xyz" for b in "1234"]
    marks = marks_of(made.plot(made.chart(*lines)))
    for group in "xyz":
        own = [marks[f"{group}{b}"] for b in "1234"]
        assert len({mark.color for mark in own}) == len({mark.dash for mark in own}) == 1
        assert len({mark.symbol for mark in own}) == 4
    assert len({marks[f"{group}1"].color for group in "xyz"}) == 3


def test_a_line_has_one_mark_in_all_panels():
    first, second = interactive(made.scaling())
    assert first["data"][0]["name"] == second["data"][0]["name"] == "linear"
    assert first["data"][0]["line"] == second["data"][0]["line"]
    assert second["data"][1]["line"]["color"] != first["data"][2]["line"]["color"]


def test_bars_reach_from_the_least_to_the_largest():
    line = Line("a", (1.0, 2.0), (5.0, 6.0), low=(4.0, 6.0), high=(8.0, 6.5))
    bars = drawn(made.chart(line))[0]["data"][0]["error_y"]
    assert (bars["arrayminus"], bars["array"]) == ([1.0, 0.0], [3.0, 0.5])
    assert bars["symmetric"] is False


def test_axes_have_their_scales_labels_and_ticks():
    layout = drawn(made.chart(made.line("a"), y=Axis("a < b")))[0]["layout"]
    assert (layout["xaxis"]["type"], layout["yaxis"]["type"]) == ("log", "linear")
    assert layout["yaxis"]["title"]["text"] == "a &lt; b"
    assert layout["xaxis"]["tickvals"] == [place for place, _ in made.POWERS]
    assert layout["xaxis"]["ticktext"] == [text for _, text in made.POWERS]
    assert "tickvals" not in layout["yaxis"]


@pytest.mark.parametrize(("scale", "height"), [("linear", 100.0), ("log", 2.0)])
def test_levels_are_lines_with_names_beside_them(scale, height):
    chart = made.chart(made.line("a"), y=Axis("y", scale), levels=(Level("log D", 100.0),))
    layout = drawn(chart)[0]["layout"]
    (line,), (name,) = layout["shapes"], layout["annotations"]
    assert (line["y0"], line["y1"], line["line"]["dash"]) == (100.0, 100.0, "dash")
    assert (name["text"], name["y"]) == ("log D", height)


def test_a_level_that_a_logarithmic_axis_cannot_show_is_no_error():
    chart = made.chart(made.line("a"), levels=(Level("nothing", 0.0),))
    assert not drawn(chart)[0]["layout"].get("annotations")


def test_spans_are_shaded_and_long_names_of_short_ones_stand_upright():
    spans = (Span("short", 16.0, 128.0), Span("a name that is much too long", 128.0, 256.0))
    first, second = drawn(made.chart(made.line("a"), spans=spans))[0]["layout"]["shapes"]
    assert (first["x0"], first["x1"], second["x1"]) == (16.0, 128.0, 256.0)
    assert first["fillcolor"] != second["fillcolor"]
    assert (first["label"]["textangle"], second["label"]["textangle"]) == (0, -90)


def test_cells_of_maps_lie_between_their_edges():
    heat = made.heat_map(texts=(("a", "b", "c"), ("d", "e", "f")))
    panel = drawn(heat)[0]
    (cells,) = panel["data"]
    assert cells["x"] == pytest.approx([math.log10(x) for x in heat.x_edges], rel=1e-6)
    assert tuple(cells["y"]) == heat.y_edges
    assert cells["z"] == [[0.0, 0.5, 1.0], [0.25, None, None]]
    assert (cells["zmin"], cells["zmax"]) == (0.0, 1.0)
    assert cells["text"][1] == ["d", "e", "f"]
    assert panel["layout"]["xaxis"]["tickvals"] == pytest.approx(
        [math.log10(x) for x in (4, 8, 16)]
    )
    assert cells["hovertext"][1][1] == "not measured"


def test_logarithmic_maps_without_ticks_have_powers_of_ten():
    heat = made.heat_map(x=Axis("x", "log"), x_edges=(0.5, 5.0, 50.0, 500.0))
    axis = drawn(heat)[0]["layout"]["xaxis"]
    assert (axis["tickvals"], axis["ticktext"]) == ([0, 1, 2], ["1", "10", "100"])


def test_kinds_of_cells_have_a_color_and_a_name_each():
    cells = drawn(
        made.heat_map(kinds=("one", "two", "three"), values=((0.0, 1.0, 2.0), (2.0, 1.0, 0.0)))
    )[0]["data"][0]
    steps = cells["colorscale"]
    assert [end for end, _ in steps] == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1])
    assert [steps[k][1] == steps[k + 1][1] for k in range(5)] == [True, False, True, False, True]
    assert cells["colorbar"]["ticktext"] == ["one", "two", "three"]
    assert cells["hovertext"][0] == ["one", "two", "three"]


def test_lines_over_maps_have_an_edge_below_them():
    frontier = Line("frontier", (4.0, 16.0), (0.5, 1.5), kind="reference")
    cells, edge, line = drawn(made.heat_map(lines=(frontier,)))[0]["data"]
    assert cells["type"] == "heatmap"
    assert edge["x"] == line["x"] == pytest.approx([math.log10(4), math.log10(16)], rel=1e-6)
    assert edge["line"]["width"] > line["line"]["width"]
    assert (edge["showlegend"], edge["hoverinfo"], line["name"]) == (False, "skip", "frontier")
    assert line["hovertext"][1] == "frontier<br>subjects S: 16<br>relations R: 1.5"


def test_what_is_told_is_shown_to_those_who_point():
    line = Line("a", (1.0, 2.0), (3.0, 4.0), told=("first point", "second point"))
    trace = drawn(made.chart(line))[0]["data"][0]
    assert trace["hovertext"] == ["a<br>first point", "a<br>second point"]
    plain = drawn(made.chart(Line("a", (1.0,), (3.0,), low=(2.0,), high=(4.0,))))[0]["data"][0]
    assert plain["hovertext"] == ["a<br>parameters: 1<br>facts: 3<br>2 to 4 over seeds"]


def test_numbers_that_are_none_leave_gaps():
    trace = drawn(made.chart(Line("a", (1.0, 2.0), (math.nan, math.inf))))[0]["data"][0]
    assert trace["y"] == [None, None]


def strings(value):
    if isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def test_no_name_brings_a_tag_or_an_entity():
    found = list(strings(interactive(made.hostile())))
    assert any("script" in text for text in found)
    for text in found:
        tags = set(re.findall(r"<[^>]*>?", text))
        assert tags <= {"<br>", "<extra>", "</extra>"}, text
        assert set(re.findall(r"&\w*;?", text)) <= {"&lt;", "&gt;", "&amp;"}, text
    (first, *_) = interactive(made.hostile())
    assert [html.unescape(trace["name"]) for trace in first["data"]] == [
        "<br>".join(name.splitlines()) for name in made.HOSTILE
    ]


def test_no_name_becomes_part_of_a_template():
    panels = interactive(made.hostile())
    traces = [trace for panel in panels for trace in panel["data"]]
    allowed = {"%{hovertext}<extra></extra>", "%{text}"}
    found = {trace[key] for trace in traces for key in trace if key.endswith("template")}
    assert found == allowed
    assert not any("meta" in trace for trace in traces)  # it makes templates of names


def test_all_of_it_is_json():
    json.dumps(interactive(made.hostile()), allow_nan=False)
