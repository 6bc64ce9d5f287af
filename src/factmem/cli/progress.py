"""Progress on stderr: a bar on a terminal, plain lines elsewhere, nothing with `--json`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from factmem._core.progress import Report
from factmem.cli.render import OutputOptions

__all__ = ["progress"]

_SECONDS_BETWEEN_LINES = 5.0
_MIN_SECONDS_TO_ESTIMATE = 1.0
"""No remaining time is shown before this much time was measured."""


@contextmanager
def progress(
    output: OutputOptions, label: str, total: int | None = None, unit: str = "step"
) -> Iterator[Report]:
    """Show progress while the block runs.

    Args:
        output: the output options of the command.
        label: the name of the computation.
        total: the maximum number of steps, if known; the remaining time is then shown.
        unit: what is counted.

    Yields:
        A function to call with the number of completed steps and named values to show. Steps are
        None while nothing is counted. A value named `left` is the number of remaining steps and
        overrides the total.
    """
    if output.json:
        yield lambda steps, **values: None
    elif sys.stderr.isatty():
        with _bar(label, total, unit) as report:
            yield report
    else:
        yield _lines(label, total, unit)


@contextmanager
def _bar(label: str, total: int | None, unit: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # Without a total, and until a report has `left`, the bar only shows that something happens.
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    columns.append(TextColumn("{task.fields[remaining]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, remaining="")
        estimate = _Estimate(total)

        def report(steps: int | None, **values: Any) -> None:
            counts: dict[str, Any] = {}
            if steps is not None:  # otherwise the bar stays as it is
                known = steps + values["left"] if "left" in values else total
                counts = {"completed": steps, "total": known}
            bar.update(
                task,
                description=_describe(label, steps, unit, values),
                remaining=estimate.update(steps, values.get("left")),
                **counts,
            )

        yield report


def _lines(label: str, total: int | None, unit: str) -> Report:
    last = time.monotonic()
    estimate = _Estimate(total)

    def report(steps: int | None, **values: Any) -> None:
        nonlocal last
        remaining = estimate.update(steps, values.get("left"))
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            parts = [_describe(label, steps, unit, values), remaining]
            sys.stderr.write(", ".join(part for part in parts if part) + "\n")
            sys.stderr.flush()

    return report


class _Estimate:
    """The remaining time, from the speed since the second report.

    The first report may come before compilation, or count steps that a checkpoint had; the time
    until the second one may include compilation. Both would make the estimate far too long.
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._reports = 0
        self._start = (0, 0.0)

    def update(self, steps: int | None, left: int | None) -> str:
        """Return the remaining time as text; empty as long as there is no estimate."""
        if steps is None:
            return ""
        now = time.monotonic()
        self._reports += 1
        if self._reports <= 2:
            self._start = (steps, now)
        first_steps, start = self._start
        total = self._total if left is None else steps + left
        if total is None or steps <= first_steps or now - start < _MIN_SECONDS_TO_ESTIMATE:
            return ""
        seconds = (now - start) * (total - steps) / (steps - first_steps)
        # Training often stops early: its total is a maximum.
        return f"{'at most' if left is None else 'about'} {_format_time(seconds)} left"


def _format_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _describe(label: str, steps: int | None, unit: str, values: dict[str, Any]) -> str:
    parts = [] if steps is None else [f"{steps:,} {unit}{'s' * (steps != 1)}"]
    for name, value in values.items():
        parts.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return f"{label}: {', '.join(parts)}"
