"""Fact tables as CSV files with the columns subject, relation, answer."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from factmem._core.atomic_files import write_atomic
from factmem._core.errors import FactTableError, printable
from factmem.facts.table import FactTable, check_name

__all__ = ["format_csv", "parse_csv", "read_csv", "write_csv"]

_COLUMNS = ("subject", "relation", "answer")
_OTHER_DELIMITERS = ";\t|"
_MAX_BYTES = 2**30


def read_csv(path: str | os.PathLike[str]) -> FactTable:
    """Read a fact table from a CSV file.

    The file is UTF-8, with or without a byte-order mark, and separated by commas. The first row
    names the columns: subject, relation and answer in any order; other columns are ignored. Names
    are taken verbatim. Repeated rows are one fact; empty lines are ignored.

    Raises:
        FactTableError: the content is invalid; the message names the file and the line.
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    try:
        return parse_csv(content)
    except FactTableError as error:
        raise FactTableError(f"{printable(Path(path).name)}: {error}") from None


def write_csv(table: FactTable, path: str | os.PathLike[str]) -> None:
    """Write all facts of a table; `read_csv` returns the same facts.

    Answers that no fact uses have no row and are lost.
    """
    write_atomic(path, format_csv(table))


def parse_csv(content: bytes) -> FactTable:
    """Parse the bytes of a CSV file, as `read_csv` does."""
    answers: dict[tuple[str, str], tuple[str, int]] = {}
    rows = _rows(_decode(content))
    columns = _find_columns(*next(rows, (1, [])))
    for line, row in rows:
        subject, relation, answer = _read_names(line, row, columns)
        first_answer, first_line = answers.setdefault((subject, relation), (answer, line))
        if first_answer != answer:
            raise FactTableError(
                f"line {line}: '{printable(subject)}', '{printable(relation)}' has the answer "
                f"'{printable(answer)}', but '{printable(first_answer)}' on line {first_line}"
            )
    if not answers:
        raise FactTableError("the file has column names but no facts")
    return FactTable.from_answers({pair: answer for pair, (answer, _) in answers.items()})


def format_csv(table: FactTable) -> bytes:
    """Return the bytes of a CSV file with all facts of a table."""
    text = io.StringIO(newline="")
    # Minimal quoting would lose a lone line end or a leading quote in a name.
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(table.records())
    return text.getvalue().encode()


def _decode(content: bytes) -> str:
    if not content:
        raise FactTableError("the file is empty; its first line must be subject,relation,answer")
    if len(content) > _MAX_BYTES:
        raise FactTableError(f"the file is larger than {_MAX_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line = before.count(b"\n") + 1
        raise FactTableError(f"line {line}: not UTF-8 text") from None


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield every non-empty row with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise FactTableError(f"line {line}: {printable(str(error))}") from None
        if row:
            yield line, row


def _find_columns(line: int, header: list[str]) -> tuple[int, tuple[int, ...]]:
    """Return the number of columns and the indices of subject, relation and answer."""
    names = [name.strip().lower() for name in header]
    for column in _COLUMNS:
        if names.count(column) > 1:
            raise FactTableError(f"line {line}: more than one column '{column}'")
    if missing := [f"'{column}'" for column in _COLUMNS if column not in names]:
        raise FactTableError(
            f"line {line}: no column {', '.join(missing)}; {_delimiter_hint(header)}the first line "
            f"must name the columns subject, relation and answer"
        )
    return len(names), tuple(names.index(column) for column in _COLUMNS)


def _delimiter_hint(header: list[str]) -> str:
    for delimiter in _OTHER_DELIMITERS:
        names = {name.strip().lower() for cell in header for name in cell.split(delimiter)}
        if names.issuperset(_COLUMNS):
            shown = "a tab" if delimiter == "\t" else f"'{delimiter}'"
            return f"the file seems to be separated by {shown}, expected ','; "
    return ""


def _read_names(line: int, row: list[str], columns: tuple[int, tuple[int, ...]]) -> list[str]:
    width, indices = columns
    if len(row) != width:
        raise FactTableError(f"line {line}: {len(row)} cells, but the first line has {width}")
    names = [row[index] for index in indices]
    for column, name in zip(_COLUMNS, names, strict=True):
        try:
            check_name(name, column)
        except FactTableError as error:
            raise FactTableError(f"line {line}: {error}") from None
    return names
