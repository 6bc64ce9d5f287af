"""Rows of numbers as CSV files."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factmem._core.atomic_files import write_atomic


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with six digits; the first row names the columns, and None is left empty."""
    write_atomic(path, format_rows(rows).encode())


def format_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as CSV text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _rounded(value) for name, value in row.items()})
    return text.getvalue()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else value
