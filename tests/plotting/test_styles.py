"""Colors, markers and dashes of lines."""

from dataclasses import replace

from tests.plotting import samples

from factmem.plotting.plot import Line
from factmem.plotting.styles import legend_names, line_styles, trace_styles


def line(name, group="", kind="measured"):
    return Line(name, (1.0,), (1.0,), kind=kind, group=group)


def test_lines_without_a_group_differ_in_color_and_marker():
    styles = line_styles([line("a"), line("b", kind="curve"), line("c", kind="points")])
    assert styles == {"a": (0, 0), "b": (1, 1), "c": (2, 2)}


def test_lines_of_a_group_share_a_color_and_differ_in_their_markers():
    lines = [line("a1", "a"), line("b1", "b"), line("a2", "a"), line("alone"), line("b2", "b")]
    assert line_styles(lines) == {
        "a1": (0, 0), "a2": (0, 1), "b1": (1, 0), "b2": (1, 1), "alone": (2, 2),
    }  # fmt: skip


def test_fits_and_references_have_no_style_and_panels_share_styles():
    lines = [line("a"), line("fit", kind="fit"), line("theirs", kind="reference"), line("b")]
    assert line_styles([*lines, *lines]) == {"a": (0, 0), "b": (1, 1)}


def test_traces_differ_in_grayscale():
    names = [f"line {k}" for k in range(8)]
    styles = trace_styles(samples.plot(samples.chart(*map(samples.line, names))))
    assert len({(styles[name].symbol, styles[name].dash) for name in names}) == 8
    assert len({styles[name].color for name in names}) == 8


def test_traces_of_a_group_share_a_color_and_differ_in_their_symbols():
    lines = [replace(samples.line(f"{a}{b}"), group=a) for a in "xyz" for b in "1234"]
    styles = trace_styles(samples.plot(samples.chart(*lines)))
    for group in "xyz":
        members = [styles[f"{group}{b}"] for b in "1234"]
        assert len({style.color for style in members}) == 1
        assert len({style.dash for style in members}) == 1
        assert len({style.symbol for style in members}) == 4
    assert len({styles[f"{group}1"].color for group in "xyz"}) == 3


def test_legend_names_are_unique_and_skip_hidden_entries():
    hidden = replace(samples.line("hidden"), in_legend=False)
    chart = samples.chart(samples.line("a"), samples.line("b"), hidden)
    assert legend_names(samples.plot(chart, chart)) == ("a", "b")
