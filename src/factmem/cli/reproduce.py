"""`factmem reproduce`: makes all figures, checks all claims and writes a report."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factmem.cli.claims import claim_data
from factmem.cli.figure import check_duration, figure_data
from factmem.cli.options import RunOptions, ScaleOptions, check_output_dir
from factmem.cli.progress import progress
from factmem.cli.render import CommandResult, OutputOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from factmem.report import Report

__all__ = ["reproduce"]


def reproduce(
    *,
    out: str = "reproduction",
    scale: ScaleOptions = ScaleOptions(),
    run: RunOptions = RunOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Make every figure of the paper, check every claim, and write a report.

    The report is one HTML page that opens in any browser, without a network. The exit code is 1 if
    a claim is not as expected.

    Args:
        out: Directory for the report and the figures; it is created if its parent exists.
    """
    run.check()
    check_output_dir("--out", out)
    from factmem import report as reports
    from factmem.experiments import Store
    from factmem.paper import FigureGroup, all_claims, all_figures, write_figure

    figures, claims = all_figures(scale.scale), all_claims()
    start = time.monotonic()
    with (
        Store(run.store_path) as store,
        run.make_workers() as workers,
        progress(output, "reproduce", total=1, unit="run") as report,
    ):
        check_duration("all figures", FigureGroup(figures), scale, run, store, workers)
        reproduction = reports.reproduce(
            figures,
            claims,
            store,
            workers,
            fresh=run.fresh,
            report=lambda state: report(state.done, running=state.running, left=state.remaining),
        )
    directory = Path(out)
    directory.mkdir(exist_ok=True)
    files = {
        plot.name: [str(path) for path in write_figure(plot, directory / "figures")]
        for plot in reproduction.plots
    }
    page = directory / "report.html"
    content = reproduction.report(scale.scale, time.monotonic() - start, _describe_workers(run))
    reports.write_report(content, page)
    data = {
        "report": str(page),
        "figures": [figure_data(plot, files[plot.name]) for plot in reproduction.plots],
        "claims": [claim_data(claim) for claim in reproduction.claims],
        "numbers": [
            {"question": number.question, "value": number.value, "description": number.description}
            for number in content.numbers
        ],
        "as_expected": all(claim.as_expected for claim in reproduction.claims),
        "scale": scale.scale,
        "seconds": time.monotonic() - start,
    }
    return CommandResult(data, lambda: _render(content, data), output, passed=data["as_expected"])


def _describe_workers(run: RunOptions) -> str:
    from factmem._core.threads import available_cores

    if run.cluster is not None:
        return "workers of a cluster"
    count = len(available_cores()) if run.workers is None else run.workers
    return f"{count} process{'es' * (count != 1)} on this machine, one thread each"


def _render(content: "Report", data: dict[str, Any]) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    lines = [Text("The three main results", style="bold")]
    for number in content.numbers:
        lines.append(Text.assemble((f"{number.question} ", "bold"), (number.value, "bold cyan")))
        lines.append(Text(f"  {number.description}"))
    figures, claims = data["figures"], data["claims"]
    slopes = [slope for figure in figures for slope in figure["slopes"] if slope["counts"]]
    agreeing = sum(slope["holds"] for slope in slopes)
    unexpected = [claim["id"] for claim in claims if not claim["as_expected"]]
    lines.append(
        Text(
            f"{len(figures)} figures ({agreeing} of {len(slopes)} fitted slopes agree with the "
            f"paper), {len(claims)} claims ({len(claims) - len(unexpected)} as expected); "
            f"took {data['seconds']:.0f} s."
        )
    )
    if unexpected:
        lines.append(Text(f"Not as expected: {', '.join(unexpected)}.", style="bold red"))
    lines.append(Text.assemble("Report: ", (data["report"], "bold")))
    return Group(*lines)
