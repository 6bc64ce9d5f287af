"""Text output: tables of labels and values, with notes below them."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["TIME_LABELS", "render_table", "requirement_notes", "to_text"]

TIME_LABELS = {"seconds": "time (s)", "compile_seconds": "compile time (s)"}
"""Labels of the two times that most commands report."""


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
