"""Everything at once: all figures, all claims, and the report of them."""

import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from factmem._core.threads import cores
from factmem.experiments.measurement import MeasurementGroup, Progress, measure
from factmem.experiments.store import Store
from factmem.experiments.workers import Workers
from factmem.paper.checking import Checked, Checks
from factmem.paper.claim import Claim
from factmem.paper.figure import Figures, FigureScale, PaperFigure
from factmem.paper.figure_4_right import smallest_stored
from factmem.plotting.plot import Chart, Plot
from factmem.report.content import KeyNumber, Report, Section

__all__ = ["Reproduction", "key_numbers", "reproduce", "reproduction_of"]

_LIBRARIES = ("factmem", "jax", "numpy", "scipy")


@dataclass(frozen=True)
class Reproduction:
    """What was reproduced.

    Args:
        figures: which figures.
        plots: what they show, in the same order.
        claims: what became of every claim.
    """

    figures: Sequence[PaperFigure]
    plots: Sequence[Plot]
    claims: Sequence[Checked]

    def report(self, scale: FigureScale, seconds: float, workers: str) -> Report:
        """The report of it.

        Args:
            scale: of the figures.
            seconds: that it took now.
            workers: who measured, in words.
        """
        sections = [
            Section(plot, figure.told)
            for figure, plot in zip(self.figures, self.plots, strict=True)
        ]
        return Report(
            "Factual recall in transformers, reproduced",
            key_numbers(self.plots),
            _run(self, scale, seconds, workers),
            tuple(sections),
            tuple(self.claims),
        )


def reproduction_of(
    figures: Sequence[PaperFigure],
    claims: Sequence[Claim],
    store: Store,
    *,
    at_length: bool = False,
    fresh: bool = False,
) -> MeasurementGroup:
    """All figures and claims as one measurement, so that no worker waits for a single one."""
    return MeasurementGroup(
        {
            "figures": Figures(figures),
            "claims": Checks(claims, store, at_length=at_length, fresh=fresh),
        }
    )


def reproduce(
    figures: Sequence[PaperFigure],
    claims: Sequence[Claim],
    store: Store,
    workers: Workers,
    *,
    at_length: bool = False,
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Reproduction:
    """Measures all that figures and claims need; what both need is measured once.

    Args:
        figures, claims: which.
        store: what is in it is not measured again; what is measured is kept in it.
        workers: who measures.
        at_length: whether slow measurements are made for claims that have one.
        fresh: whether the store is ignored.
        report: told how far it is.
    """
    whole = reproduction_of(figures, claims, store, at_length=at_length, fresh=fresh)
    found = measure(whole, store, workers, fresh=fresh, report=report)
    return Reproduction(figures, found["figures"], found["claims"])


def key_numbers(plots: Sequence[Plot]) -> tuple[KeyNumber, ...]:
    """The three numbers that matter, as far as the figures that they rest on are there."""
    named = {plot.name: plot for plot in plots}
    makers: Mapping[str, Callable[[Plot], KeyNumber | None]] = {
        "4-left": _how_many,
        "4-right": _where,
        "5-left": _when,
    }
    found = [make(named[name]) for name, make in makers.items() if name in named]
    return tuple(number for number in found if number is not None)


def _how_many(plot: Plot) -> KeyNumber | None:
    """Of the sizes that the law speaks of: the last slope that counts."""
    slopes = [slope for slope in plot.slopes if slope.counts and slope.slope is not None]
    lines = {slope.name.split(",")[0] for slope in slopes}
    columns = [plot.data.header.index(name) for name in ("line", "facts", "parameters", "possible")]
    rows = [[row[column] for column in columns] for row in plot.data.rows]
    shares = [
        float(facts) / float(parameters)
        for line, facts, parameters, possible in rows
        if str(line).split(",")[0] in lines and facts and parameters
        if not isinstance(possible, float) or possible >= 0.99
    ]
    if not slopes or not shares:
        return None
    law = slopes[-1]
    return KeyNumber(
        "How many?",
        f"{statistics.median(shares):.2f} facts per parameter",
        f"Trained transformers store this many, and it grows with their size as parameters to the "
        f"power {law.slope:.2f} ({law.low:.2f} to {law.high:.2f}). Figure 4, left.",
    )


def _where(plot: Plot) -> KeyNumber | None:
    found = smallest_stored(plot)
    if found is None:
        return None
    parameters, share = found
    return KeyNumber(
        "Where?",
        f"{100 * share:.0f} % in the MLP",
        f"The smallest shape of the map that stores the table has {parameters:,} parameters, this "
        "part of them in the MLP and the rest in attention. Figure 4, right.",
    )


def _when(plot: Plot) -> KeyNumber | None:
    (chart,) = plot.panels
    if not isinstance(chart, Chart) or len(chart.spans) < 3:
        return None
    stage = chart.spans[1]
    share = (stage.end - stage.start) / stage.end
    return KeyNumber(
        "When?",
        f"{100 * share:.0f} % of the time",
        f"Of the {stage.end:,.0f} steps before subjects are learned, the model spends this part "
        "knowing relations alone and making answers up. Figure 5, left.",
    )


def _run(
    found: Reproduction, scale: FigureScale, seconds: float, workers: str
) -> tuple[tuple[str, str], ...]:
    expected = sum(claim.as_expected for claim in found.claims)
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    scales = {
        "quick": "quick: small sizes and short training, three seeds",
        "paper": "paper: the authors' full grids",
    }
    return (
        ("Scale", scales[scale]),
        ("Figures", f"{len(found.plots)}, each with its caption below"),
        ("Claims", f"{len(found.claims)} checked, {expected} as expected"),
        ("Measured in", f"{seconds:,.0f} s this time; stored runs are not measured again"),
        ("Workers", workers),
        ("Machine", f"{platform.machine()}, {len(cores())} cores, {platform.system()}"),
        ("Software", f"Python {platform.python_version()}, {libraries}"),
        ("Made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    )
