"""`factmem reproduce`: all figures, all claims, one report."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factmem.cli.answer import Answer, Output
from factmem.cli.claims import claim_data
from factmem.cli.figure import (
    Measuring,
    check_measuring,
    check_patience,
    figure_data,
)
from factmem.cli.kept import store_path
from factmem.cli.progress import progress
from factmem.cli.working import workers_of

if TYPE_CHECKING:
    from factmem.report import Report

__all__ = ["reproduce"]


def reproduce(
    *,
    out: str = "reproduction",
    measuring: Measuring = Measuring(),
    output: Output = Output(),
) -> Answer:
    """Make every figure of the paper, check every claim, and write a report of both.

    The report is one page that opens in any browser, without a network. Exit code 1 if a claim
    does not come out as it should.

    Args:
        out: folder of the report and of the figures' files.
    """
    check_measuring(measuring, out)
    from factmem import report as reports
    from factmem.experiments import Store
    from factmem.paper import Figures, all_claims, all_figures, write_figure

    figures, claims = all_figures(measuring.scale), all_claims()
    start = time.monotonic()
    with (
        Store(store_path(measuring.store)) as store,
        workers_of(measuring.workers, measuring.cluster) as workers,
        progress(output, "reproduce", total=1, unit="run") as told,
    ):
        check_patience("all figures", Figures(figures), measuring, store, workers)
        found = reports.reproduce(
            figures,
            claims,
            store,
            workers,
            fresh=measuring.fresh,
            report=lambda now: told(now.done, running=now.running, left=now.left),
        )
    place = Path(out)
    written = {
        plot.name: [str(path) for path in write_figure(plot, place / "figures")]
        for plot in found.plots
    }
    page = place / "report.html"
    made = found.report(measuring.scale, time.monotonic() - start, _workers(measuring))
    reports.write_report(made, page)
    data = {
        "report": str(page),
        "figures": [figure_data(plot, written[plot.name]) for plot in found.plots],
        "claims": [claim_data(each) for each in found.claims],
        "numbers": [
            {"question": number.question, "value": number.value, "told": number.told}
            for number in made.numbers
        ],
        "as_expected": all(each.as_expected for each in found.claims),
        "scale": measuring.scale,
        "seconds": time.monotonic() - start,
    }
    return Answer(data, lambda: _shown(made, data), output, holds=data["as_expected"])


def _workers(measuring: Measuring) -> str:
    from factmem._core.threads import cores

    if measuring.cluster is not None:
        return "those of a cluster"
    count = len(cores()) if measuring.workers is None else measuring.workers
    return f"{count} process{'es' * (count != 1)} of this machine, one thread each"


def _shown(made: "Report", data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.text import Text

    lines = [Text.assemble(("The three numbers that matter", "bold"))]
    for number in made.numbers:
        lines.append(Text.assemble((f"{number.question} ", "bold"), (number.value, "bold cyan")))
        lines.append(Text(f"  {number.told}"))
    slopes = [slope for each in data["figures"] for slope in each["slopes"] if slope["counts"]]
    held = sum(slope["holds"] for slope in slopes)
    claims = [each["id"] for each in data["claims"] if not each["as_expected"]]
    lines.append(
        Text(
            f"{len(data['figures'])} figures ({held} of {len(slopes)} fitted slopes as the paper "
            f"says), {len(data['claims'])} claims ({len(data['claims']) - len(claims)} as "
            f"expected); {data['seconds']:.0f} s."
        )
    )
    if claims:
        lines.append(Text(f"Not as expected: {', '.join(claims)}.", style="bold red"))
    lines.append(Text.assemble("The report: ", (data["report"], "bold")))
    return Group(*lines)
