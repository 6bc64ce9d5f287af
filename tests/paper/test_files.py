"""The files of a figure."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.paper.stand_ins import simple_plot

from factmem.paper import files, write_figure
from factmem.plotting.plot import DataTable

PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)
ROWS = st.lists(st.tuples(PLAIN, st.none() | st.integers(), st.floats(allow_nan=False)), max_size=4)


def read(text):
    return list(csv.reader(io.StringIO(text, newline="")))


@given(ROWS)
def test_csv_round_trip(rows):
    header, *rows_read = read(DataTable.of(["name", "count", "value"], rows).csv)
    assert header == ["name", "count", "value"]
    assert [row[0] for row in rows_read] == [row[0] for row in rows]
    assert [None if row[1] == "" else int(row[1]) for row in rows_read] == [row[1] for row in rows]
    assert [float(row[2]) for row in rows_read] == [row[2] for row in rows]


def test_csv_quotes_commas_quotes_and_line_ends():
    names = ("a,b", 'say "so"', "two\nlines", "", " spaced ", "=1+1", "ü ∝ ⌊x⌋")
    text = DataTable.of(["a,b"], [[name] for name in names]).csv
    assert [row[0] if row else "" for row in read(text)] == ["a,b", *names]


def test_missing_values_are_empty_cells():
    assert DataTable.of(["a", "b", "c"], [[None, 1, None]]).csv == "a,b,c\n,1,\n"


def test_writes_pdf_png_csv_and_caption(tmp_path):
    plot = simple_plot(
        name="4-left",
        title="Title ∝",
        caption="Caption.",
        data=DataTable.of(["line", "facts"], [["a,b", 3], ["c", None]]),
    )
    directory = tmp_path / "deep" / "figures"
    paths = write_figure(plot, directory)
    names = [f"figure-4-left.{kind}" for kind in ("pdf", "png", "csv", "txt")]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in directory.iterdir()) == sorted(names)
    pdf, png, table, caption = (path.read_bytes() for path in paths)
    assert pdf.startswith(b"%PDF")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert png.startswith(b"\x89PNG")
    assert png.endswith(b"IEND\xaeB`\x82")
    assert read(table.decode()) == [["line", "facts"], ["a,b", "3"], ["c", ""]]
    assert caption.decode() == "Title ∝. Caption.\n"


def test_replaces_existing_files(tmp_path):
    write_figure(simple_plot(caption="Old."), tmp_path)
    paths = write_figure(simple_plot(caption="New."), str(tmp_path))
    assert paths[3].read_text() == "A title. New.\n"
    assert len(list(tmp_path.iterdir())) == 4


def test_an_interruption_leaves_existing_files_unchanged(tmp_path, monkeypatch):
    """Every file is the old or the new one, never a part, and no temporary file is left."""
    before = {path.name: path.read_bytes() for path in write_figure(simple_plot(), tmp_path)}

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("factmem._core.tensor_files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_figure(simple_plot(caption="New."), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_all_files_are_written_atomically(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(files, "write_atomic", lambda path, _: written.append(path.suffix))
    monkeypatch.setattr(files, "save_figure", lambda _, path: written.append(path.suffix))
    write_figure(simple_plot(), tmp_path)
    assert written == [".pdf", ".png", ".csv", ".txt"]
    assert list(tmp_path.iterdir()) == []
