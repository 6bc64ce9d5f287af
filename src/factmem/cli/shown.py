"""What a person sees of an answer: a table of labels and numbers, and sentences below it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["shown"]


def shown(
    title: str, labels: Mapping[str, str], data: Mapping[str, Any], notes: Iterable[str] = ()
) -> "RenderableType":
    """A table of the data that have a label and are known, and notes below it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for key, label in labels.items():
        if data.get(key) is not None:
            table.add_row(label, Text(_number(data[key])))
    return Group(table, *(Text(note) for note in notes))


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
