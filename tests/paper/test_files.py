"""The files of a figure."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.paper.made import simple_plot

from factmem.paper import files, write_figure
from factmem.plotting.plot import DataTable

PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)
ROWS = st.lists(st.tuples(PLAIN, st.none() | st.integers(), st.floats(allow_nan=False)), max_size=4)


def read(text):
    return list(csv.reader(io.StringIO(text, newline="")))


@given(ROWS)
def test_a_table_is_read_back_as_it_was(rows):
    header, *found = read(DataTable.of(["name", "count", "value"], rows).csv)
    assert header == ["name", "count", "value"]
    assert [row[0] for row in found] == [row[0] for row in rows]
    assert [None if row[1] == "" else int(row[1]) for row in found] == [row[1] for row in rows]
    assert [float(row[2]) for row in found] == [row[2] for row in rows]


def test_commas_quotes_and_line_ends_stay_in_their_cells():
    names = ("a,b", 'say "so"', "two\nlines", "", " spaced ", "=1+1", "ü ∝ ⌊x⌋")
    text = DataTable.of(["a,b"], [[name] for name in names]).csv
    assert [row[0] if row else "" for row in read(text)] == ["a,b", *names]


def test_what_is_missing_is_empty():
    assert DataTable.of(["a", "b", "c"], [[None, 1, None]]).csv == "a,b,c\n,1,\n"


def test_a_figure_has_four_files_with_what_they_should_hold(tmp_path):
    plot = simple_plot(
        name="4-left",
        title="Title ∝",
        caption="Caption.",
        data=DataTable.of(["line", "facts"], [["a,b", 3], ["c", None]]),
    )
    folder = tmp_path / "deep" / "figures"
    paths = write_figure(plot, folder)
    names = [f"figure-4-left.{kind}" for kind in ("pdf", "png", "csv", "txt")]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    pdf, png, table, caption = (path.read_bytes() for path in paths)
    assert pdf.startswith(b"%PDF")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert png.startswith(b"\x89PNG")
    assert png.endswith(b"IEND\xaeB`\x82")
    assert read(table.decode()) == [["line", "facts"], ["a,b", "3"], ["c", ""]]
    assert caption.decode() == "Title ∝. Caption.\n"


def test_files_are_replaced(tmp_path):
    write_figure(simple_plot(caption="Old."), tmp_path)
    paths = write_figure(simple_plot(caption="New."), str(tmp_path))
    assert paths[3].read_text() == "A title. New.\n"
    assert len(list(tmp_path.iterdir())) == 4


def test_an_interruption_leaves_whole_files_alone(tmp_path, monkeypatch):
    """Every file is there as it was, or new: never a part of it, and nothing beside it."""
    before = {path.name: path.read_bytes() for path in write_figure(simple_plot(), tmp_path)}

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("factmem._core.tensor_files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_figure(simple_plot(caption="New."), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_all_of_them_are_written_by_the_function_that_writes_whole(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(files, "write_atomic", lambda path, _: written.append(path.suffix))
    monkeypatch.setattr(files, "save_figure", lambda _, path: written.append(path.suffix))
    write_figure(simple_plot(), tmp_path)
    assert written == [".pdf", ".png", ".csv", ".txt"]
    assert list(tmp_path.iterdir()) == []
