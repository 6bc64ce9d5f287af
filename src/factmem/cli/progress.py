"""Progress on stderr: a bar on a terminal, plain lines elsewhere, nothing with --json."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from factmem._core.progress import Report
from factmem.cli.answer import Output

__all__ = ["progress"]

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(
    output: Output, label: str, total: int | None = None, unit: str = "step"
) -> Iterator[Report]:
    """Shows how far a command is while the block runs.

    Args:
        output: the command's flags.
        label: what is being done.
        total: steps at most, where it is known; the bar then shows the time left.
        unit: what is counted, if not steps.

    Yields:
        What to call with the steps done and figures by name. If `left` is one of them, so many
        steps are left, whatever the total was.
    """
    if output.json:
        yield lambda steps, **figures: None
    elif sys.stderr.isatty():
        with _bar(label, total, unit) as report:
            yield report
    else:
        yield _lines(label, total, unit)


@contextmanager
def _bar(label: str, total: int | None, unit: str) -> Iterator[Report]:
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

        def report(steps: int, **figures: Any) -> None:
            whole = steps + figures["left"] if "left" in figures else total
            told = _told(label, steps, unit, figures)
            bar.update(task, completed=steps, total=whole, description=told)

        yield report


def _lines(label: str, total: int | None, unit: str) -> Report:
    last = time.monotonic()
    first: tuple[int, float] | None = None

    def report(steps: int, **figures: Any) -> None:
        nonlocal last, first
        now = time.monotonic()
        # The time left counts from the first report on: what was resumed took no time now.
        begun, since = first = first or (steps, now)
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            left = ""
            if steps > begun and ("left" in figures or total is not None):
                more = figures["left"] if "left" in figures else (total or 0) - steps
                most = "about" if "left" in figures else "at most"
                left = f", {most} {_time((now - since) * more / (steps - begun))} left"
            sys.stderr.write(f"{_told(label, steps, unit, figures)}{left}\n")
            sys.stderr.flush()

    return report


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _told(label: str, steps: int, unit: str, figures: dict[str, Any]) -> str:
    told = [f"{label}: {steps:,} {unit}{'s' * (steps != 1)}"]
    for name, value in figures.items():
        told.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(told)
