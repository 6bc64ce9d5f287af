"""Plots for tests: every kind of panel, and hostile names."""

import math

from factmem.plotting.plot import Axis, Chart, DataTable, HeatMap, Level, Line, Plot, Slope, Span

BOLD = "<b>x</b>"
SCRIPT = "<script>window.broken=1</script>"
CLOSING = "</script><script>window.broken=1</script>"
ENTITY = "a&lt;b"
TEMPLATE = "%{x}%{text}"
QUOTED = "\"quoted\" and 'quoted'"
LINK = '<a href="javascript:window.broken=1">link</a>'
IMAGE = '"><img src=x onerror="window.broken=1">'
COMMENT = "<!--<script>"
SEPARATOR = "line\u2028separator"
HOSTILE = (BOLD, SCRIPT, CLOSING, ENTITY, TEMPLATE, QUOTED, LINK, IMAGE, COMMENT, SEPARATOR)

SIZES = (16.0, 32.0, 64.0, 128.0, 256.0)
TICKS = tuple((size, f"2^{k}") for k, size in enumerate(SIZES, start=4))


def line(name, factor=1.0, **fields):
    return Line(name, SIZES, tuple(factor * x**1.1 for x in SIZES), **fields)


def chart(*lines, **fields):
    defaults = {"x": Axis("parameters", "log", TICKS), "y": Axis("facts", "log")}
    return Chart(**(defaults | fields), lines=lines)


def heat_map(**fields):
    defaults = {
        "x": Axis("subjects S", "log", ((4.0, "4"), (8.0, BOLD), (16.0, SCRIPT))),
        "y": Axis("relations R"),
        "x_edges": (2.83, 5.66, 11.3, 22.6),
        "y_edges": (0.0, 1.0, 2.0),
        "values": ((0.0, 0.5, 1.0), (0.25, None, math.nan)),
        "value_label": LINK,
    }
    return HeatMap(**(defaults | fields))


def table(*rows):
    return DataTable.of(["name", "parameters", "facts"], rows or [["linear", 16, 0.1]])


def plot(*panels, name="4-left", **fields):
    defaults = {"title": "A title", "caption": "A caption.", "data": table()}
    return Plot(name, panels=panels, **(defaults | fields))


def slope(**fields):
    defaults = {"name": BOLD, "law": "facts ∝ parameters^slope", "slope": 1.02, "low": 0.98,
                "high": 1.06, "expected": (0.9, 1.1)}  # fmt: skip
    return Slope(**(defaults | fields))


def scaling():
    """Return a plot with every kind of line, a level, spans and slopes."""
    low, high = tuple(0.8 * x for x in SIZES), tuple(3.0 * x for x in SIZES)
    return plot(
        chart(
            line("linear", low=low, high=high),
            line("fit of linear", kind="fit"),
            line("other", 2.0),
            line("theory", 3.0, kind="reference"),
            title="left of two",
            levels=(Level("a level", 100.0),),
            spans=(Span("first", 16.0, 64.0), Span("second", 64.0, 256.0)),
        ),
        chart(line("linear", 0.5), line("a curve", 0.7, kind="curve"), y=Axis("loss")),
        name="2-left",
        slopes=(
            slope(name="linear"),
            slope(low=2.0, high=2.2, counts=False),
            slope(slope=None, low=None, high=None),
        ),
    )


def hostile():
    """Return a plot whose every text tries to be more than text."""
    hover_texts = tuple(f"{SCRIPT} {TEMPLATE} {k}" for k in range(5))
    grid = ((BOLD, SCRIPT, ENTITY), (TEMPLATE, LINK, QUOTED))
    lines = [line(name, 2.0**k, hover_texts=hover_texts) for k, name in enumerate(HOSTILE)]
    return plot(
        chart(
            *lines,
            x=Axis(SCRIPT, "log", tuple(zip(SIZES, HOSTILE, strict=False))),
            y=Axis(ENTITY),
            title=CLOSING,
            levels=(Level(LINK, 9.0),),
            spans=(Span(SCRIPT, 16.0, 200.0),),
        ),
        heat_map(texts=grid, hover_texts=grid, title=IMAGE),
        heat_map(
            values=((0.0, 1.0, 2.0), (1.0, None, 0.0)),
            categories=(BOLD, SCRIPT, TEMPLATE),
            lines=(Line("frontier", (4.0, 16.0), (0.5, 1.5), kind="reference"),),
        ),
        name='5"><script>window.broken=1</script>',
        title=CLOSING,
        caption=IMAGE,
        data=table(*[[name, 1, 0.5] for name in HOSTILE], ["=1+1", None, -0.1]),
        slopes=(slope(name=SCRIPT),),
    )
