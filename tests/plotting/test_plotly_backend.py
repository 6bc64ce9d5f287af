"""Plotly figures as data; `tests/report/test_browser.py` draws them."""

import html
import json
import math
import re

import pytest
from tests.plotting import samples

from factmem.plotting import draw_plotly
from factmem.plotting.plot import Axis, Level, Line, Note, Span
from factmem.plotting.styles import LINE_COLORS


def draw(*panels):
    return draw_plotly(samples.plot(*panels))


def test_each_panel_is_a_figure_and_each_line_a_trace():
    plot = samples.scaling()
    figures = draw_plotly(plot)
    assert [len(f["data"]) for f in figures] == [len(panel.lines) for panel in plot.panels]
    assert {trace["type"] for panel in figures for trace in panel["data"]} == {"scatter"}
    for figure, panel in zip(figures, plot.panels, strict=True):
        for trace, line in zip(figure["data"], panel.lines, strict=True):
            assert (trace["name"], tuple(trace["x"])) == (line.name, line.x)
            assert trace["y"] == pytest.approx(line.y)


def test_kinds_of_lines_differ():
    measured, fit, _, theory = draw(samples.scaling().panels[0])[0]["data"]
    (curve,) = draw(samples.chart(samples.line("a", kind="curve")))[0]["data"]
    modes = [trace["mode"] for trace in (measured, fit, theory, curve)]
    assert modes == ["lines+markers", "lines", "lines", "lines"]
    assert theory["line"]["dash"] != "solid"
    assert theory["line"]["color"] not in {light for light, _ in LINE_COLORS}
    assert curve["line"]["width"] > fit["line"]["width"]
    assert fit["line"]["color"] == measured["line"]["color"]


def test_a_line_has_the_same_style_in_all_panels():
    first, second = draw_plotly(samples.scaling())
    assert first["data"][0]["name"] == second["data"][0]["name"] == "linear"
    assert first["data"][0]["line"] == second["data"][0]["line"]
    assert second["data"][1]["line"]["color"] != first["data"][2]["line"]["color"]


def test_error_bars_span_the_range():
    line = Line("a", (1.0, 2.0), (5.0, 6.0), low=(4.0, 6.0), high=(8.0, 6.5))
    bars = draw(samples.chart(line))[0]["data"][0]["error_y"]
    assert (bars["arrayminus"], bars["array"]) == ([1.0, 0.0], [3.0, 0.5])
    assert bars["symmetric"] is False


def test_axes_have_scales_labels_and_ticks():
    layout = draw(samples.chart(samples.line("a"), y=Axis("a < b")))[0]["layout"]
    assert (layout["xaxis"]["type"], layout["yaxis"]["type"]) == ("log", "linear")
    assert layout["yaxis"]["title"]["text"] == "a &lt; b"
    assert layout["xaxis"]["tickvals"] == [position for position, _ in samples.TICKS]
    assert layout["xaxis"]["ticktext"] == [text for _, text in samples.TICKS]
    assert "tickvals" not in layout["yaxis"]


@pytest.mark.parametrize(("scale", "height"), [("linear", 100.0), ("log", 2.0)])
def test_levels_are_lines_with_names_beside_the_chart(scale, height):
    chart = samples.chart(samples.line("a"), y=Axis("y", scale), levels=(Level("log D", 100.0),))
    layout = draw(chart)[0]["layout"]
    (line,), (name,) = layout["shapes"], layout["annotations"]
    assert (line["y0"], line["y1"], line["line"]["dash"]) == (100.0, 100.0, "dash")
    assert (name["text"], name["y"]) == ("log D", height)


def test_a_level_at_zero_on_a_logarithmic_axis_has_no_name():
    chart = samples.chart(samples.line("a"), levels=(Level("nothing", 0.0),))
    assert not draw(chart)[0]["layout"].get("annotations")


def test_spans_are_shaded_and_names_that_do_not_fit_are_rotated():
    spans = (Span("short", 16.0, 128.0), Span("a name that is much too long", 128.0, 256.0))
    first, second = draw(samples.chart(samples.line("a"), spans=spans))[0]["layout"]["shapes"]
    assert (first["x0"], first["x1"], second["x1"]) == (16.0, 128.0, 256.0)
    assert first["fillcolor"] != second["fillcolor"]
    assert (first["label"]["textangle"], second["label"]["textangle"]) == (0, -90)


def test_heat_maps_have_cells_between_their_edges():
    heat_map = samples.heat_map(texts=(("a", "b", "c"), ("d", "e", "f")))
    panel = draw(heat_map)[0]
    (cells,) = panel["data"]
    assert cells["x"] == pytest.approx([math.log10(x) for x in heat_map.x_edges], rel=1e-6)
    assert tuple(cells["y"]) == heat_map.y_edges
    assert cells["z"] == [[0.0, 0.5, 1.0], [0.25, None, None]]
    assert (cells["zmin"], cells["zmax"]) == (0.0, 1.0)
    assert cells["text"][1] == ["d", "e", "f"]
    assert panel["layout"]["xaxis"]["tickvals"] == pytest.approx(
        [math.log10(x) for x in (4, 8, 16)]
    )
    assert cells["hovertext"][1][1] == "not measured"


def test_logarithmic_maps_without_ticks_get_powers_of_ten():
    heat_map = samples.heat_map(x=Axis("x", "log"), x_edges=(0.5, 5.0, 50.0, 500.0))
    axis = draw(heat_map)[0]["layout"]["xaxis"]
    assert (axis["tickvals"], axis["ticktext"]) == ([0, 1, 2], ["1", "10", "100"])


def test_categories_have_a_color_and_a_name_each():
    cells = draw(
        samples.heat_map(
            categories=("one", "two", "three"), values=((0.0, 1.0, 2.0), (2.0, 1.0, 0.0))
        )
    )[0]["data"][0]
    steps = cells["colorscale"]
    assert [end for end, _ in steps] == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1])
    assert [steps[k][1] == steps[k + 1][1] for k in range(5)] == [True, False, True, False, True]
    assert cells["colorbar"]["ticktext"] == ["one", "two", "three"]
    assert cells["hovertext"][0] == ["one", "two", "three"]


def test_lines_over_maps_have_a_white_edge():
    frontier = Line("frontier", (4.0, 16.0), (0.5, 1.5), kind="reference")
    cells, edge, line = draw(samples.heat_map(lines=(frontier,)))[0]["data"]
    assert cells["type"] == "heatmap"
    assert edge["x"] == line["x"] == pytest.approx([math.log10(4), math.log10(16)], rel=1e-6)
    assert edge["line"]["width"] > line["line"]["width"]
    assert (edge["showlegend"], edge["hoverinfo"], line["name"]) == (False, "skip", "frontier")
    assert line["hovertext"][1] == "frontier<br>subjects S: 16<br>relations R: 1.5"


def test_hover_texts_default_to_the_values():
    line = Line("a", (1.0, 2.0), (3.0, 4.0), hover_texts=("first point", "second point"))
    trace = draw(samples.chart(line))[0]["data"][0]
    assert trace["hovertext"] == ["a<br>first point", "a<br>second point"]
    plain = draw(samples.chart(Line("a", (1.0,), (3.0,), low=(2.0,), high=(4.0,))))[0]["data"][0]
    assert plain["hovertext"] == ["a<br>parameters: 1<br>facts: 3<br>2 to 4 over seeds"]


def test_values_that_are_not_finite_become_gaps():
    trace = draw(samples.chart(Line("a", (1.0, 2.0), (math.nan, math.inf))))[0]["data"][0]
    assert trace["y"] == [None, None]


def strings(value):
    if isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)
    elif isinstance(value, str):
        yield value


def test_names_are_escaped():
    texts = list(strings(draw_plotly(samples.hostile())))
    assert any("script" in text for text in texts)
    for text in texts:
        tags = set(re.findall(r"<[^>]*>?", text))
        assert tags <= {"<br>", "<extra>", "</extra>"}, text
        assert set(re.findall(r"&\w*;?", text)) <= {"&lt;", "&gt;", "&amp;"}, text
    (first, *_) = draw_plotly(samples.hostile())
    assert [html.unescape(trace["name"]) for trace in first["data"]] == [
        "<br>".join(name.splitlines()) for name in samples.HOSTILE
    ]


def test_names_are_not_part_of_templates():
    panels = draw_plotly(samples.hostile())
    traces = [trace for panel in panels for trace in panel["data"]]
    allowed = {"%{hovertext}<extra></extra>", "%{text}"}
    templates = {trace[key] for trace in traces for key in trace if key.endswith("template")}
    assert templates == allowed
    assert not any("meta" in trace for trace in traces)  # plotly fills it into names


def test_figures_are_json():
    json.dumps(draw_plotly(samples.hostile()), allow_nan=False)


def test_points_have_no_line_and_may_have_horizontal_error_bars():
    line = Line("a", (1.0, 2.0), (5.0, 6.0), kind="points", x_low=(0.5, 2.0), x_high=(4.0, 2.5))
    trace = draw(samples.chart(line))[0]["data"][0]
    assert trace["mode"] == "markers"
    assert (trace["error_x"]["arrayminus"], trace["error_x"]["array"]) == ([0.5, 0.0], [3.0, 0.5])


def test_limits_are_logarithms_on_logarithmic_axes():
    chart = samples.chart(
        samples.line("a"),
        x=Axis("x", "log", limits=(10.0, 1000.0)),
        y=Axis("y", limits=(0.0, None)),
    )
    layout = draw(chart)[0]["layout"]
    assert layout["xaxis"]["range"] == [1.0, 3.0]
    assert layout["yaxis"]["range"] == [0.0, None]


def test_lines_may_be_left_out_of_the_legend():
    hidden = Line("hidden", (1.0,), (1.0,), in_legend=False)
    panel = draw(samples.chart(hidden))[0]
    assert not panel["data"][0]["showlegend"]
    assert not panel["layout"]["showlegend"]


def test_notes_and_brackets_are_drawn_and_escaped():
    chart = samples.chart(
        samples.line("a"),
        notes=(Note(samples.BOLD, 100.0, 10.0),),
        spans=(Span("first", 16.0, 200.0),),
        spans_label="ours",
        brackets=(Span(samples.SCRIPT, 16.0, 250.0),),
        brackets_label=samples.ENTITY,
    )
    layout = draw(chart)[0]["layout"]
    note, ours, theirs = layout["annotations"]
    assert (note["x"], note["y"], html.unescape(note["text"])) == (2.0, 1.0, samples.BOLD)
    assert (ours["text"], html.unescape(theirs["text"])) == ("ours", samples.ENTITY)
    bracket = layout["shapes"][-1]
    assert (bracket["x0"], bracket["x1"]) == (16.0, 250.0)
    assert html.unescape(bracket["label"]["text"]) == samples.SCRIPT


def test_color_bars_have_custom_ticks():
    heat_map = samples.heat_map(value_ticks=((0.0, "none"), (1.0, samples.BOLD)))
    bar = draw(heat_map)[0]["data"][0]["colorbar"]
    assert bar["tickvals"] == [0.0, 1.0]
    assert [html.unescape(text) for text in bar["ticktext"]] == ["none", samples.BOLD]


def test_points_over_maps_have_no_edge():
    points = Line("dots", (4.0,), (0.5,), kind="points")
    _, trace = draw(samples.heat_map(lines=(points,)))[0]["data"]
    assert trace["mode"] == "markers"
