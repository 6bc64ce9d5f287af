"""`factmem figure`: one figure of the paper."""

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError, visible
from factmem.cli.answer import Answer, Output
from factmem.cli.kept import store_path
from factmem.cli.progress import progress
from factmem.cli.working import check_workers, workers_of

if TYPE_CHECKING:
    from factmem.experiments import Measurement, Store, Workers
    from factmem.paper import PaperFigure
    from factmem.plotting import Plot

__all__ = [
    "Measuring",
    "check_measuring",
    "check_patience",
    "figure",
    "figure_data",
]

_HOUR = 3600.0


@Parameter(name="*")
@dataclass(frozen=True)
class Measuring:
    """How something long is measured."""

    scale: Literal["quick", "paper"] = "quick"
    """quick takes minutes; paper is the authors' full grid, and takes hours or days."""
    yes: Annotated[bool, Parameter(negative=())] = False
    """Begin even if it takes more than an hour."""
    store: str | None = None
    """File of results: what is there is not done again (default: $FACTMEM_STORE, or yours)."""
    fresh: Annotated[bool, Parameter(negative=())] = False
    """Ignore stored results, and replace them."""
    workers: int | None = None
    """Processes on this machine (default: one for each core)."""
    cluster: str | None = None
    """Use the workers of a dask scheduler instead, such as tcp://host:8786."""


def figure(
    name: str,
    *,
    out: str = "figures",
    so_far: Annotated[bool, Parameter(negative=())] = False,
    measuring: Measuring = Measuring(),
    output: Output = Output(),
) -> Answer:
    """Make one figure of the paper, as PDF, PNG and CSV with a caption.

    What is measured is kept, so that an interrupted figure goes on where it was, and drawing it
    again takes seconds.

    Args:
        name: 1-left, 1-right, 2, 3, 4-left, 4-right, 5-left, 5-right, 6, 7, 8 or 9.
        out: folder of the files.
        so_far: draw what is there, and measure nothing; a figure that is being made may be looked
            at so.
    """
    check_measuring(measuring, out)
    if so_far and measuring.fresh:
        raise FactmemError("--so-far draws stored results, which --fresh ignores: give one of them")
    from factmem.paper import figure_named, write_figure

    chosen = figure_named(name, measuring.scale)
    start = time.monotonic()
    plot, missing = (_stored if so_far else _measured)(chosen, measuring, output)
    files = [str(path) for path in write_figure(plot, out)]
    data = {**figure_data(plot, files), "scale": measuring.scale, "missing_runs": missing}
    data["seconds"] = time.monotonic() - start
    return Answer(data, lambda: _shown(plot, files, data["seconds"]), output)


def _stored(chosen: "PaperFigure", measuring: Measuring, _: Output) -> tuple["Plot", int]:
    """What a store has of a figure, and about how many runs are missing."""
    from factmem.experiments import Store
    from factmem.experiments.measurement import stored_records

    with Store(store_path(measuring.store)) as store:
        known = stored_records(chosen.measured, store)
    return chosen.drawn(known), chosen.measured.remaining(known)


def _measured(chosen: "PaperFigure", measuring: Measuring, output: Output) -> tuple["Plot", int]:
    """The whole figure: what is missing is measured."""
    from factmem.experiments import Store, measure
    from factmem.paper import Figures

    told = f"figure {chosen.name}"
    with (
        Store(store_path(measuring.store)) as store,
        workers_of(measuring.workers, measuring.cluster) as workers,
        progress(output, told, total=1, unit="run") as report,
    ):
        check_patience(told, chosen.measured, measuring, store, workers)
        (plot,) = measure(
            Figures([chosen]),
            store,
            workers,
            fresh=measuring.fresh,
            report=lambda now: report(now.done, running=now.running, left=now.left),
        )
    return plot, 0


def figure_data(plot: "Plot", files: list[str]) -> dict[str, Any]:
    """What JSON says of a figure."""
    slopes = [{**asdict(slope), "holds": slope.holds} for slope in plot.slopes]
    return {"name": plot.name, "files": files, "caption": plot.caption, "slopes": slopes}


def check_measuring(measuring: Measuring, out: str) -> None:
    """What can be said before anything is loaded."""
    check_workers(measuring.workers, measuring.cluster)
    store_path(measuring.store)
    if not out or "\0" in out:
        raise FactmemError("--out is the name of a folder")
    # The folder itself, or what it will be made in: better known before hours of measuring.
    there = next(place for place in (Path(out), *Path(out).parents) if place.exists())
    if not there.is_dir():
        raise FactmemError(f"--out is a folder, and '{visible(str(there))}' is none")
    if not os.access(there, os.W_OK | os.X_OK):
        raise FactmemError(f"--out: nothing can be written into '{visible(str(there))}'")


def check_patience(
    what: str,
    measured: "Measurement",
    measuring: Measuring,
    store: "Store",
    workers: "Workers",
) -> None:
    """Raises FactmemError, with the time that it will take, where that is long and not wanted.

    The speed is measured first, which takes half a minute: only where it may take long.
    """
    if measuring.scale == "quick" or measuring.yes:
        return
    from factmem.experiments.measurement import stored_records
    from factmem.paper.estimate import expected_seconds, measured_speed

    known = {} if measuring.fresh else stored_records(measured, store)
    if not measured.pending(known).needed:
        return
    many = max(1, workers.free())
    seconds = expected_seconds(measured, known, measured_speed(store, workers)) / many
    if seconds > _HOUR:
        raise FactmemError(
            f"{what} at paper scale takes about {_told(seconds)} on {many} workers: give --yes to "
            "begin. What is measured is kept, so that it may be interrupted and begun again"
        )


def _told(seconds: float) -> str:
    hours = seconds / _HOUR
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _shown(plot: "Plot", files: list[str], seconds: float) -> Any:
    from rich.console import Group
    from rich.text import Text

    return Group(
        Text(plot.title, style="bold"),
        Text(plot.caption),
        Text(""),
        *(Text(path) for path in files),
        Text(f"{seconds:.0f} s."),
    )
