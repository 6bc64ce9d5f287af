"""`factmem figure`: makes one figure of the paper."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from factmem._core.errors import FactmemError
from factmem.cli.options import RunOptions, ScaleOptions, check_output_dir
from factmem.cli.progress import progress
from factmem.cli.render import CommandResult, OutputOptions
from factmem.paper.registry import figure_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from factmem.experiments import Measurement, Store, Workers
    from factmem.paper import PaperFigure
    from factmem.plotting import Plot

__all__ = ["check_duration", "figure", "figure_data"]

_HOUR = 3600.0


def figure(
    name: Annotated[str, Parameter(help=f"One of {', '.join(figure_names())}.")],
    /,
    *,
    out: str = "figures",
    partial: bool = False,
    scale: ScaleOptions = ScaleOptions(),
    run: RunOptions = RunOptions(),
    output: OutputOptions = OutputOptions(),
) -> CommandResult:
    """Make one figure of the paper: PDF, PNG, CSV and a caption.

    Runs are stored. If interrupted, the same command continues where it stopped, and drawing the
    figure again takes seconds.

    Args:
        out: Directory for the files; it is created if its parent exists.
        partial: Draw the figure from the stored runs, without running anything. Use this to look at
            a figure while its runs are in progress.
    """
    run.check()
    check_output_dir("--out", out)
    if partial and run.fresh:
        raise FactmemError("--partial cannot be combined with --fresh")
    from factmem.paper import get_figure, write_figure

    chosen = get_figure(name, scale.scale)
    start = time.monotonic()
    if partial:
        plot, missing = _draw_stored(chosen, run)
    else:
        plot, missing = _measure(chosen, scale, run, output), 0
    files = [str(path) for path in write_figure(plot, out)]
    data = {**figure_data(plot, files), "scale": scale.scale, "missing_runs": missing}
    data["seconds"] = time.monotonic() - start
    return CommandResult(data, lambda: _render(plot, files, data["seconds"]), output)


def _draw_stored(chosen: "PaperFigure", run: RunOptions) -> tuple["Plot", int]:
    """Draw a figure from stored runs; also return about how many runs are missing."""
    from factmem.experiments import Store
    from factmem.experiments.measurement import stored_records

    with Store(run.store_path) as store:
        known = stored_records(chosen.measurement, store)
    return chosen.draw(known), chosen.measurement.remaining(known)


def _measure(
    chosen: "PaperFigure", scale: ScaleOptions, run: RunOptions, output: OutputOptions
) -> "Plot":
    """Execute the missing runs of a figure and draw it."""
    from factmem.experiments import Store, measure
    from factmem.paper import FigureGroup

    label = f"figure {chosen.name}"
    with (
        Store(run.store_path) as store,
        run.make_workers() as workers,
        progress(output, label, total=1, unit="run") as report,
    ):
        check_duration(label, chosen.measurement, scale, run, store, workers)
        (plot,) = measure(
            FigureGroup([chosen]),
            store,
            workers,
            fresh=run.fresh,
            report=lambda state: report(state.done, running=state.running, left=state.remaining),
        )
    return plot


def figure_data(plot: "Plot", files: list[str]) -> dict[str, Any]:
    """Return a figure as JSON data."""
    slopes = [{**asdict(slope), "holds": slope.holds} for slope in plot.slopes]
    return {"name": plot.name, "files": files, "caption": plot.caption, "slopes": slopes}


def check_duration(
    label: str,
    measurement: "Measurement",
    scale: ScaleOptions,
    run: RunOptions,
    store: "Store",
    workers: "Workers",
) -> None:
    """Raise FactmemError if a measurement takes more than an hour and `--yes` was not given.

    To estimate the time, the speed of the machine is measured, which takes half a minute. This is
    done only at paper scale, if runs are missing.
    """
    if scale.scale == "quick" or scale.yes:
        return
    from factmem.experiments.estimate import expected_seconds, measure_speed
    from factmem.experiments.measurement import stored_records

    known = {} if run.fresh else stored_records(measurement, store)
    if not measurement.pending(known).needed:
        return
    count = max(1, workers.free())
    seconds = expected_seconds(measurement, known, measure_speed(store, workers)) / count
    if seconds > _HOUR:
        raise FactmemError(
            f"{label} at paper scale takes about {_format_duration(seconds)} with "
            f"{count} worker{'s' * (count != 1)}; add --yes to start. Finished runs are stored, so "
            "it can be interrupted and continued"
        )


def _format_duration(seconds: float) -> str:
    hours = seconds / _HOUR
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _render(plot: "Plot", files: list[str], seconds: float) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    return Group(
        Text(plot.title, style="bold"),
        Text(plot.caption),
        Text(""),
        *(Text(path) for path in files),
        Text(f"Took {seconds:.0f} s."),
    )
