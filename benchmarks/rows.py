"""Rows of numbers as CSV files."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factmem._core.atomic_files import write_atomic


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows under the names of the first, with six digits; what is missing stays empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _rounded(value) for key, value in row.items()})
    write_atomic(path, text.getvalue().encode())


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else value
