"""Reports for tests: with every kind of panel, and with names that want to be more than text."""

import math

from factmem.experiments.scheduler import PendingTasks
from factmem.paper.checking import Checked
from factmem.paper.claim import Check, Claim, Finding, Verdict
from factmem.plotting.plot import (
    Axis,
    Chart,
    DataTable,
    HeatMap,
    Level,
    Line,
    Plot,
    Slope,
    Span,
)
from factmem.report import KeyNumber, Report, Section

BOLD = "<b>x</b>"
SCRIPT = "<script>window.broken=1</script>"
CLOSING = "</script><script>window.broken=1</script>"
ENTITY = "a&lt;b"
TEMPLATE = "%{x} %{text}"
QUOTED = "\"quoted\" and 'quoted'"
LINK = '<a href="javascript:window.broken=1">link</a>'
IMAGE = '"><img src=x onerror="window.broken=1">'
COMMENT = "<!--<script>"
SEPARATOR = "line\u2028separator"
HOSTILE = (BOLD, SCRIPT, CLOSING, ENTITY, TEMPLATE, QUOTED, LINK, IMAGE, COMMENT, SEPARATOR)

POWERS = tuple((2.0**k, f"2^{k}") for k in range(4, 9))
SIZES = (16.0, 32.0, 64.0, 128.0, 256.0)


class Unmeasured:
    """A measurement of nothing."""

    def pending(self, known, /):
        return PendingTasks([])

    def result(self, known, /):
        return None

    def remaining(self, known, /):
        return 0


def line(name, factor=1.0, **given):
    return Line(name, SIZES, tuple(factor * x**1.1 for x in SIZES), **given)


def chart(*lines, **given):
    axes = {"x": Axis("parameters", "log", POWERS), "y": Axis("facts", "log")}
    return Chart(**(axes | given), lines=lines)


def heat_map(**given):
    cells = {
        "x": Axis("subjects S", "log", ((4.0, "4"), (8.0, BOLD), (16.0, SCRIPT))),
        "y": Axis("relations R"),
        "x_edges": (2.83, 5.66, 11.3, 22.6),
        "y_edges": (0.0, 1.0, 2.0),
        "values": ((0.0, 0.5, 1.0), (0.25, None, math.nan)),
        "unit": LINK,
    }
    return HeatMap(**(cells | given))


def table(*rows):
    return DataTable.of(["name", "parameters", "facts"], rows or [["linear", 16, 0.1]])


def plot(*panels, name="4-left", **given):
    return Plot(name, **({"title": "A title", "caption": "A caption.", "data": table()} | given),
                panels=panels)  # fmt: skip


def slope(**given):
    told = {"name": BOLD, "law": "facts ∝ parameters^slope", "slope": 1.02, "low": 0.98,
            "high": 1.06, "expected": (0.9, 1.1)}  # fmt: skip
    return Slope(**(told | given))


def checked(verdict=Verdict.HOLDS, *checks, name="it", note="", refuted=False, **given):
    claim = Claim(name, "It is so.", "Theorem 1", "By looking.", Unmeasured(), lambda _: None,
                  refuted=refuted)  # fmt: skip
    finding = Finding(verdict, checks, given.pop("within", None), note)
    measured = {"at_length": False, "seeds": (0, 1, 2), "runs": 6, "read": 0, "seconds": 1.5}
    return Checked(claim, finding, **(measured | given))


def of(*plots, **given):
    sections = tuple(Section(each, "What it shows.") for each in plots)
    said = {"title": "A report", "numbers": (), "run": (), "sections": sections, "claims": ()}
    return Report(**(said | given))


def scaling():
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
    told = tuple(f"{SCRIPT} {TEMPLATE} {k}" for k in range(5))
    grid = ((BOLD, SCRIPT, ENTITY), (TEMPLATE, LINK, QUOTED))
    lines = [line(name, 2.0**k, told=told) for k, name in enumerate(HOSTILE)]
    ends = (Level(LINK, 9.0),), (Span(SCRIPT, 16.0, 200.0),)
    return plot(
        chart(
            *lines,
            x=Axis(SCRIPT, "log", tuple(zip(SIZES, HOSTILE, strict=False))),
            y=Axis(ENTITY),
            title=CLOSING,
            levels=ends[0],
            spans=ends[1],
        ),
        heat_map(texts=grid, told=grid, title=IMAGE),
        heat_map(
            values=((0.0, 1.0, 2.0), (1.0, None, 0.0)),
            kinds=(BOLD, SCRIPT, TEMPLATE),
            lines=(Line("frontier", (4.0, 16.0), (0.5, 1.5), kind="reference"),),
        ),
        name='5"><script>window.broken=1</script>',
        title=CLOSING,
        caption=IMAGE,
        data=table(*[[name, 1, 0.5] for name in HOSTILE], ["=1+1", None, -0.1]),
        slopes=(slope(name=SCRIPT),),
    )


def claims():
    fine = Check("facts", 1.5, "at least 1", True)
    wrong = Check(SCRIPT, math.nan, IMAGE, False)
    return (
        checked(Verdict.HOLDS, fine, name="holds-it"),
        checked(Verdict.WITHIN, fine, name="within-it", within=0.031, at_length=True, read=4),
        checked(Verdict.FAILS, fine, wrong, name="fails-it", note=CLOSING),
        checked(Verdict.FAILS, wrong, name="misread-it", refuted=True, seeds=(0,)),
        checked(Verdict.NOT_CHECKABLE, name="unknown-it", note=LINK),
    )


def report():
    """Everything at once."""
    return Report(
        SCRIPT,
        (KeyNumber("How many?", IMAGE, SCRIPT), KeyNumber("Where?", BOLD, ENTITY)),
        ((SCRIPT, CLOSING), ("seeds", "3")),
        (
            Section(scaling(), "First paragraph.\n\nSecond paragraph."),
            Section(hostile(), CLOSING),
        ),
        claims(),
    )
