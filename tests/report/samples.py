"""Reports for tests, with hostile texts everywhere."""

import math

from tests.plotting import samples as plots
from tests.plotting.samples import BOLD, CLOSING, ENTITY, IMAGE, LINK, SCRIPT

from factmem.experiments.scheduler import PendingTasks
from factmem.paper.checking import CheckedClaim
from factmem.paper.claim import Check, Claim, Finding, Verdict
from factmem.report import KeyNumber, Report, Section


class NoMeasurement:
    """A measurement without tasks."""

    def pending(self, known, /):
        return PendingTasks([])

    def result(self, known, /):
        return None

    def used_tasks(self, known, /):
        return []

    def remaining(self, known, /):
        return 0


def checked_claim(verdict=Verdict.HOLDS, *checks, name="it", note="", refuted=False, **fields):
    claim = Claim(name, "It is so.", "Theorem 1", "By looking.", NoMeasurement(), lambda _: None,
                  refuted=refuted)  # fmt: skip
    finding = Finding(verdict, checks, fields.pop("max_deviation", None), note)
    defaults = {"scale": "quick", "seeds": (0, 1, 2), "runs": 6, "runs_read": 0, "seconds": 1.5}
    return CheckedClaim(claim, finding, **(defaults | fields))


def report_of(*figures, **fields):
    """Return a report with nothing but these plots and fields."""
    sections = tuple(Section(plot, "What it shows.") for plot in figures)
    defaults = {"title": "A report", "numbers": (), "run": (), "sections": sections, "claims": ()}
    return Report(**(defaults | fields))


def claims():
    good = Check("facts", 1.5, "at least 1", True)
    bad = Check(SCRIPT, math.nan, IMAGE, False)
    return (
        checked_claim(Verdict.HOLDS, good, name="holds-it"),
        checked_claim(Verdict.HOLDS_WITHIN, good, name="within-it", max_deviation=0.031,
                      scale="paper", runs_read=4),
        checked_claim(Verdict.FAILS, good, bad, name="fails-it", note=CLOSING),
        checked_claim(Verdict.FAILS, bad, name="misread-it", refuted=True, seeds=(0,)),
        checked_claim(Verdict.NOT_CHECKABLE, name="unknown-it", note=LINK),
    )  # fmt: skip


def report():
    """Return a report with every kind of content."""
    return Report(
        SCRIPT,
        (KeyNumber("How many?", IMAGE, SCRIPT), KeyNumber("Where?", BOLD, ENTITY)),
        ((SCRIPT, CLOSING), ("seeds", "3")),
        (
            Section(plots.scaling(), "First paragraph.\n\nSecond paragraph."),
            Section(plots.hostile(), CLOSING),
        ),
        claims(),
    )
