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
def progress(output: Output, label: str, unit: str, total: int | None = None) -> Iterator[Report]:
    """Shows how far a command is while the block runs.

    Args:
        output: the command's flags.
        label: what is being done.
        unit: what the reported number is, "loss" or "accuracy".
        total: steps at most, where it is known.

    Yields:
        What to call with the steps done and the number.
    """
    if output.json:
        yield lambda steps, value: None
    elif sys.stderr.isatty():
        with _bar(label, unit, total) as report:
            yield report
    else:
        yield _lines(label, unit)


@contextmanager
def _bar(label: str, unit: str, total: int | None) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    if total is not None:
        columns.insert(2, BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps, value: bar.update(
            task, completed=steps, description=f"{label}: {steps:,} steps, {unit} {value:.4g}"
        )


def _lines(label: str, unit: str) -> Report:
    last = time.monotonic()

    def report(steps: int, value: float) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            sys.stderr.write(f"{label}: {steps:,} steps, {unit} {value:.4g}\n")
            sys.stderr.flush()

    return report
