"""Reproduction of the paper: all figures, all claims, and the report about them."""

import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from factmem._core.threads import available_cores
from factmem.experiments.measurement import MeasurementGroup, Progress, measure
from factmem.experiments.store import Store
from factmem.experiments.workers import Workers
from factmem.paper.checking import CheckedClaim, ClaimGroup
from factmem.paper.claim import Claim
from factmem.paper.figure import FigureGroup, PaperFigure, Scale
from factmem.paper.figure_4_right import smallest_stored
from factmem.plotting.plot import Chart, Plot
from factmem.report.content import KeyNumber, Report, Section

__all__ = ["Reproduction", "key_numbers", "reproduce", "reproduction_measurement"]

_LIBRARIES = ("factmem", "jax", "numpy", "scipy")


@dataclass(frozen=True)
class Reproduction:
    """Reproduced figures and claims.

    Args:
        figures: the figures of the paper.
        plots: their plots, in the same order.
        claims: the checked claims.
    """

    figures: Sequence[PaperFigure]
    plots: Sequence[Plot]
    claims: Sequence[CheckedClaim]

    def report(self, scale: Scale, seconds: float, workers: str) -> Report:
        """Return the report.

        Args:
            scale: the scale of the figures.
            seconds: the duration of this run.
            workers: a description of the workers.
        """
        sections = [
            Section(plot, figure.description)
            for figure, plot in zip(self.figures, self.plots, strict=True)
        ]
        return Report(
            "Factual recall in transformers, reproduced",
            key_numbers(self.plots),
            _describe_run(self, scale, seconds, workers),
            tuple(sections),
            tuple(self.claims),
        )


def reproduction_measurement(
    figures: Sequence[PaperFigure],
    claims: Sequence[Claim],
    store: Store,
    *,
    claims_scale: Scale = "quick",
    fresh: bool = False,
) -> MeasurementGroup:
    """Return all figures and claims as one measurement, so that no worker is ever idle."""
    return MeasurementGroup(
        {
            "figures": FigureGroup(figures),
            "claims": ClaimGroup(claims, store, scale=claims_scale, fresh=fresh),
        }
    )


def reproduce(
    figures: Sequence[PaperFigure],
    claims: Sequence[Claim],
    store: Store,
    workers: Workers,
    *,
    claims_scale: Scale = "quick",
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Reproduction:
    """Measure what figures and claims need; a run that both need is made once.

    Args:
        figures, claims: the figures and claims to reproduce.
        store: the run store; its runs are not made again, and new runs are written to it.
        workers: the processes that execute tasks.
        claims_scale: `paper` makes the slower measurements of the claims that have one.
        fresh: ignore stored results and replace them.
        report: called every second and after every run.
    """
    measurement = reproduction_measurement(
        figures, claims, store, claims_scale=claims_scale, fresh=fresh
    )
    result = measure(measurement, store, workers, fresh=fresh, report=report)
    return Reproduction(figures, result["figures"], result["claims"])


def key_numbers(plots: Sequence[Plot]) -> tuple[KeyNumber, ...]:
    """Return the main results, as far as the figures that they are read from are given."""
    by_name = {plot.name: plot for plot in plots}
    readers: Mapping[str, Callable[[Plot], KeyNumber | None]] = {
        "4-left": _how_many,
        "4-right": _where,
        "5-left": _when,
    }
    numbers = [read(by_name[name]) for name, read in readers.items() if name in by_name]
    return tuple(number for number in numbers if number is not None)


def _how_many(plot: Plot) -> KeyNumber | None:
    """Read facts per parameter, at sizes that embeddings do not limit, and the last slope."""
    slopes = [slope for slope in plot.slopes if slope.counts and slope.slope is not None]
    lines = {slope.name.split(",")[0] for slope in slopes}
    columns = [plot.data.header.index(name) for name in ("line", "facts", "parameters", "possible")]
    rows = [[row[column] for column in columns] for row in plot.data.rows]
    ratios = [
        float(facts) / float(parameters)
        for line, facts, parameters, possible in rows
        if str(line).split(",")[0] in lines and facts and parameters
        if not isinstance(possible, float) or possible >= 0.99
    ]
    if not slopes or not ratios:
        return None
    law = slopes[-1]
    return KeyNumber(
        "How many?",
        f"{statistics.median(ratios):.2f} facts per parameter",
        f"Trained transformers store this many. Their capacity grows as parameters to the power "
        f"{law.slope:.2f} ({law.low:.2f} to {law.high:.2f}). Figure 4, left.",
    )


def _where(plot: Plot) -> KeyNumber | None:
    smallest = smallest_stored(plot)
    if smallest is None:
        return None
    parameters, fraction = smallest
    return KeyNumber(
        "Where?",
        f"{100 * fraction:.0f}% in the MLP",
        f"The smallest shape in the map that stores the table has {parameters:,} parameters. This "
        "fraction of them is in the MLP, the rest in attention. Figure 4, right.",
    )


def _when(plot: Plot) -> KeyNumber | None:
    (chart,) = plot.panels
    if not isinstance(chart, Chart) or len(chart.spans) < 3:
        return None
    stage = chart.spans[1]
    fraction = (stage.end - stage.start) / stage.end
    return KeyNumber(
        "When?",
        f"{100 * fraction:.0f}% of the time",
        f"Subjects are learned after {stage.end:,.0f} steps. For this fraction of them the model "
        "knows only relations and hallucinates answers. Figure 5, left.",
    )


def _describe_run(
    reproduction: Reproduction, scale: Scale, seconds: float, workers: str
) -> tuple[tuple[str, str], ...]:
    expected = sum(claim.as_expected for claim in reproduction.claims)
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    scales = {
        "quick": "quick: small sizes and short training, three seeds",
        "paper": "paper: the authors' full grids",
    }
    machine = f"{platform.machine()}, {len(available_cores())} cores, {platform.system()}"
    return (
        ("Scale", scales[scale]),
        ("Figures", f"{len(reproduction.plots)}, each with its caption"),
        ("Claims", f"{len(reproduction.claims)} checked, {expected} as expected"),
        ("Duration", f"{seconds:,.0f} s, without runs that were in the store already"),
        ("Workers", workers),
        ("Machine", machine),
        ("Software", f"Python {platform.python_version()}, {libraries}"),
        ("Date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    )
