"""Fact tables as CSV with the columns subject, relation, answer."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path

from factmem._core.atomic_files import write_atomic
from factmem._core.errors import FactTableError, visible
from factmem.facts.table import FactTable, check_name

__all__ = ["format_csv", "parse_csv", "read_csv", "write_csv"]

_COLUMNS = ("subject", "relation", "answer")
_MOST_BYTES = 2**30


def read_csv(path: str | os.PathLike[str]) -> FactTable:
    """Reads a table of facts from a CSV file.

    UTF-8, with or without a byte-order mark. The first row names the columns; subject, relation
    and answer may stand in any order, and other columns are passed over. Names are taken exactly
    as they stand. A row that comes twice is one fact; empty lines are passed over.

    Raises:
        FactTableError: with the file's name and the line that is wrong.
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        return parse_csv(content)
    except FactTableError as error:
        raise FactTableError(f"{visible(Path(path).name)}: {error}") from None


def write_csv(table: FactTable, path: str | os.PathLike[str]) -> None:
    """Writes every fact of a table; `read_csv` gives the same facts back.

    Answers that no fact uses have no row, so they are not kept.
    """
    write_atomic(path, format_csv(table))


def parse_csv(content: bytes) -> FactTable:
    """The table in the bytes of a CSV file."""
    answers: dict[tuple[str, str], tuple[str, int]] = {}
    rows = _rows(_decoded(content))
    where = _columns(*next(rows, (1, [])))
    for line, row in rows:
        subject, relation, answer = _names(line, row, where)
        known, first_line = answers.setdefault((subject, relation), (answer, line))
        if known != answer:
            raise FactTableError(
                f"line {line}: '{visible(subject)}', '{visible(relation)}' has the answer "
                f"'{visible(answer)}' here and '{visible(known)}' on line {first_line}"
            )
    if not answers:
        raise FactTableError("line 1: there are column names, but no facts below them")
    return FactTable.from_answers({question: answer for question, (answer, _) in answers.items()})


def format_csv(table: FactTable) -> bytes:
    """The bytes of a CSV file with every fact of a table."""
    text = io.StringIO(newline="")
    # Quoting every name keeps what a sparing writer loses: a lone line end, a leading quote.
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(table.records())
    return text.getvalue().encode()


def _decoded(content: bytes) -> str:
    if not content:
        raise FactTableError("the file is empty; its first line should be subject,relation,answer")
    if len(content) > _MOST_BYTES:
        raise FactTableError(f"the file is longer than {_MOST_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line = before.count(b"\n") + 1
        raise FactTableError(f"line {line}: this is not UTF-8 text") from None


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, with the number of the line on which it starts."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise FactTableError(f"line {line}: {visible(str(error))}") from None
        if row:
            yield line, row


def _columns(line: int, header: list[str]) -> tuple[int, tuple[int, ...]]:
    """The number of columns, and where subject, relation and answer stand among them."""
    names = [name.strip().lower() for name in header]
    for column in _COLUMNS:
        if names.count(column) != 1:
            fault = "no column" if column not in names else "more than one column"
            raise FactTableError(
                f"line {line}: {fault} '{column}'; the first line names the columns, and "
                f"subject, relation and answer must be among them"
            )
    return len(names), tuple(names.index(column) for column in _COLUMNS)


def _names(line: int, row: list[str], where: tuple[int, tuple[int, ...]]) -> list[str]:
    width, places = where
    if len(row) != width:
        raise FactTableError(f"line {line}: {len(row)} cells, where the first line has {width}")
    names = [row[place] for place in places]
    for column, name in zip(_COLUMNS, names, strict=True):
        try:
            check_name(name, column)
        except FactTableError as error:
            raise FactTableError(f"line {line}: {error}") from None
    return names
