"""Progress on stderr: a bar on a terminal, plain lines elsewhere, nothing with --json."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from factmem.cli.answer import Output
from factmem.progress import Report

__all__ = ["progress"]

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(output: Output, label: str, total: int | None = None) -> Iterator[Report]:
    """Shows how far a command is while the block runs.

    Args:
        output: the command's flags.
        label: what is being done.
        total: steps at most, where it is known; the bar then shows the time left.

    Yields:
        What to call with the steps done and figures by name.
    """
    if output.json:
        yield lambda steps, **figures: None
    elif sys.stderr.isatty():
        with _bar(label, total) as report:
            yield report
    else:
        yield _lines(label, total)


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    if total is not None:
        columns[2:] = [BarColumn(), TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps, **figures: bar.update(
            task, completed=steps, description=_told(label, steps, figures)
        )


def _lines(label: str, total: int | None) -> Report:
    last = time.monotonic()
    first: tuple[int, float] | None = None

    def report(steps: int, **figures: float) -> None:
        nonlocal last, first
        now = time.monotonic()
        # The time left counts from the first report on: what was resumed took no time now.
        begun, since = first = first or (steps, now)
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            left = ""
            if total is not None and steps > begun:
                left = f", {(now - since) * (total - steps) / (steps - begun):.0f} s left at most"
            sys.stderr.write(f"{_told(label, steps, figures)}{left}\n")
            sys.stderr.flush()

    return report


def _told(label: str, steps: int, figures: dict[str, float]) -> str:
    return ", ".join(
        [f"{label}: {steps:,} steps", *(f"{name} {value:.4g}" for name, value in figures.items())]
    )
