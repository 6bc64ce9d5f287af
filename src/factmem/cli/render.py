"""The result of a command, printed as JSON for programs or as a table for people.

Commands return a `CommandResult`; only `emit` writes to stdout.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from factmem._core.canonical_json import to_json_data

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "STDOUT",
    "TIME_LABELS",
    "CommandResult",
    "OutputOptions",
    "emit",
    "named_stdout",
    "render_table",
    "requirement_notes",
    "to_text",
]

STDOUT = "<stdout>"
"""The file name in errors of writing to stdout."""
TIME_LABELS = {"seconds": "time (s)", "compile_seconds": "XLA compile time (s)"}
"""Labels of the two times that most commands report."""


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """Options that every command has."""

    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Args:
        data: the JSON object.
        render: returns what a person sees; called only without `--json`.
        output: the output options of the command.
        passed: False if a requirement or a claim does not hold; the exit code is then 1.
    """

    data: Mapping[str, Any]
    render: "Callable[[], RenderableType]"
    output: OutputOptions
    passed: bool = True


def emit(result: CommandResult) -> int:
    """Print a result as JSON or as text, and return the exit code."""
    with named_stdout():
        if result.output.json:
            text = json.dumps(to_json_data(result.data), allow_nan=False) + "\n"
        else:
            # At the end rich writes "" to stdout; if that is unbuffered, a full disk fails here.
            text = to_text(result.render())
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0 if result.passed else 1


@contextmanager
def named_stdout() -> Iterator[None]:
    """Name stdout in errors of writing to it.

    Such an error has no file name: without one, nobody knows which disk is full.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, STDOUT) from None


def render_table(
    title: str, labels: Mapping[str, str], data: Mapping[str, Any], notes: Iterable[str] = ()
) -> "RenderableType":
    """Return a table with one row per label whose value is not None, and notes below it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for key, label in labels.items():
        if data.get(key) is not None:
            table.add_row(label, Text(_format(data[key])))
    return Group(table, *(Text(note) for note in notes))


def requirement_notes(passed: bool, required: float | None) -> list[str]:
    """Return the note that `--require` was not met, or no note."""
    return [] if passed else [f"The accuracy is below the required {required}."]


def to_text(renderable: "RenderableType") -> str:
    """Render to a string, as wide as the terminal."""
    from rich.console import Console

    # Rendered to a string first: rich itself calls sys.exit if a pipe is closed.
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
