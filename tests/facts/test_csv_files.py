"""Tables survive CSV, and CSV that is no table is refused with the line that is wrong."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.facts.test_table import fact_lists

from factmem._core.errors import FactTableError
from factmem.facts import FactTable, csv_files, format_csv, parse_csv, read_csv, write_csv

HEADER = b"subject,relation,answer\n"
ONE = FactTable.from_records([("s", "r", "a")])


@given(fact_lists)
def test_every_table_survives_csv(records):
    table = FactTable.from_records(records)
    assert parse_csv(format_csv(table)) == table


def test_a_random_table_keeps_its_facts_and_ids(tmp_path):
    table = FactTable.random(50, 4, 3)
    write_csv(table, tmp_path / "facts.csv")
    assert read_csv(tmp_path / "facts.csv") == table


# Bytes that come close to a table, so that the search reaches past the header.
pieces = st.sampled_from(
    [b"s", b"r", b"a", b",", b",", b"\n", b"\r", b'"', b" ", b"\0", b"\xef\xbb\xbf", b"\xc3\xa9"]
)
near_tables = st.lists(pieces, max_size=40).map(lambda parts: HEADER + b"".join(parts))
rows = st.lists(st.tuples(*[st.text(max_size=4)] * 3), max_size=5).map(
    lambda found: HEADER + "\n".join(",".join(row) for row in found).encode("utf-8", "replace")
)


@given(st.one_of(st.binary(), near_tables, rows))
@example(HEADER + b's,r,"a')
@example(HEADER + b's,r,"a"b')
@example(HEADER + b"s\0,r,a")
@example(b"\xef\xbb\xbf" + HEADER + b'"\xef\xbb\xbfs",r,a')
@example(HEADER + b'"s\r",r,a\rs,r,"\n"')
def test_any_bytes_are_a_table_that_survives_or_an_error(content):
    try:
        table = parse_csv(content)
    except FactTableError as error:
        assert str(error).isprintable()  # noqa: PT017
        return
    assert parse_csv(format_csv(table)) == table


@pytest.mark.parametrize(
    "content",
    [
        HEADER + b"s,r,a",
        HEADER + b"s,r,a\n\n\ns,r,a\r\n",
        b"\xef\xbb\xbf" + HEADER + b"s,r,a\n",
        b"answer, Subject ,source,RELATION\na,s,somewhere,r\n",
        b'"subject","relation","answer"\r\n"s","r","a"\r\n',
        b"subject,relation,answer\rs,r,a\r",
    ],
)
def test_usual_dialects_are_understood(content):
    assert parse_csv(content) == ONE


def test_names_may_contain_anything():
    odd = [
        ("a,b", '"quoted"', "<script>alert(1)</script>"),
        ("line\nend", "tab\tand\0nul", "\x1b[31mred"),
        (" spaces ", "'; DROP TABLE facts; --", "../../etc/passwd"),
        ("日本", "été", "\u202eright to left"),
    ]
    table = parse_csv(format_csv(FactTable.from_records(odd)))
    assert set(table.records()) == set(odd)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file is empty"),
        (b"\n\n", "line 1: no column 'subject'"),
        (b"subject,relation\ns,r\n", "line 1: no column 'answer'"),
        (b"subject;relation;answer\n", "line 1: no column 'subject'"),
        (b"subject,relation,answer,answer\n", "line 1: more than one column 'answer'"),
        (HEADER, "no facts"),
        (HEADER + b"s,r,a\nt,r\n", "line 3: 2 cells, where the first line has 3"),
        (HEADER + b"s,r,a,b\n", "line 2: 4 cells"),
        (HEADER + b"s,r,a\ns,,a\n", "line 3: the name of a relation is empty"),
        (HEADER + b"s,r,a\nt,r,b\ns,r,b\n", "line 4: .* answer 'b' here and 'a' on line 2"),
        (HEADER + b"s,r,a\n\xff\n", "line 3: this is not UTF-8"),
        ("subject,relation,answer\ns,r,a\n".encode("utf-16"), "line 1: this is not UTF-8"),
        (HEADER + b'"two\nlines",r,a\ns,r\n', "line 4: 2 cells"),
        (b"subject,relation,answer\rs,r,a\r\xff", "line 3: this is not UTF-8"),
        (HEADER + b'"open,r,a\n', "line 2: "),
        (HEADER + b"x" * 200_000 + b",r,a\n", "line 2: "),
        (HEADER + b"x" * 120_000 + b",r,a\n", "line 2: .* longer than"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(content, message):
    with pytest.raises(FactTableError, match=message):
        parse_csv(content)


def test_a_small_file_cannot_ask_for_a_huge_table():
    rows = b"".join(b"s%d,r%d,a\n" % (i, i) for i in range(11_000))
    with pytest.raises(FactTableError, match="11000 subjects × 11000 relations"):
        parse_csv(HEADER + rows)


def test_a_file_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(csv_files, "_MOST_BYTES", 1000)
    with pytest.raises(FactTableError, match="longer than 1000 bytes"):
        read_csv("/dev/zero")


def test_an_error_names_the_file(tmp_path):
    (tmp_path / "bad.csv").write_bytes(HEADER)
    with pytest.raises(FactTableError, match=r"bad\.csv: "):
        read_csv(tmp_path / "bad.csv")
