"""Reading and writing CSV files; errors name the line."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.facts.test_table import fact_lists

from factmem._core.errors import FactTableError
from factmem.facts import FactTable, csv_files, format_csv, parse_csv, read_csv, write_csv

HEADER = b"subject,relation,answer\n"
ONE = FactTable.from_records([("s", "r", "a")])


@given(fact_lists)
def test_csv_round_trip(records):
    table = FactTable.from_records(records)
    assert parse_csv(format_csv(table)) == table


def test_file_round_trip_keeps_ids(tmp_path):
    table = FactTable.random(50, 4, 3)
    write_csv(table, tmp_path / "facts.csv")
    assert read_csv(tmp_path / "facts.csv") == table


# Bytes that resemble a table, so that hypothesis gets past the header.
pieces = st.sampled_from(
    [b"s", b"r", b"a", b",", b",", b"\n", b"\r", b'"', b" ", b"\0", b"\xef\xbb\xbf", b"\xc3\xa9"]
)
near_tables = st.lists(pieces, max_size=40).map(lambda parts: HEADER + b"".join(parts))
rows = st.lists(st.tuples(*[st.text(max_size=4)] * 3), max_size=5).map(
    lambda rows: HEADER + "\n".join(",".join(row) for row in rows).encode("utf-8", "replace")
)


@given(st.one_of(st.binary(), near_tables, rows))
@example(HEADER + b's,r,"a')
@example(HEADER + b's,r,"a"b')
@example(HEADER + b"s\0,r,a")
@example(b"\xef\xbb\xbf" + HEADER + b'"\xef\xbb\xbfs",r,a')
@example(HEADER + b'"s\r",r,a\rs,r,"\n"')
def test_any_bytes_parse_or_raise_a_fact_table_error(content):
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
def test_reads_common_csv_dialects(content):
    assert parse_csv(content) == ONE


def test_names_may_contain_any_characters():
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
        (b"subject,relation,answer,answer\n", "line 1: more than one column 'answer'"),
        (HEADER, "no facts"),
        (HEADER + b"s,r,a\nt,r\n", "line 3: 2 cells, but the first line has 3"),
        (HEADER + b"s,r,a,b\n", "line 2: 4 cells"),
        (HEADER + b"s,r,a\ns,,a\n", "line 3: relation names must not be blank"),
        (HEADER + b"s,r,a\nt,r,b\ns,r,b\n", "line 4: .* the answer 'b', but 'a' on line 2"),
        (HEADER + b"s,r,a\n\xff\n", "line 3: not UTF-8"),
        ("subject,relation,answer\ns,r,a\n".encode("utf-16"), "line 1: not UTF-8"),
        (HEADER + b'"two\nlines",r,a\ns,r\n', "line 4: 2 cells"),
        (b"subject,relation,answer\rs,r,a\r\xff", "line 3: not UTF-8"),
        (HEADER + b'"open,r,a\n', "line 2: "),
        (HEADER + b"x" * 200_000 + b",r,a\n", "line 2: "),
        (HEADER + b"x" * 120_000 + b",r,a\n", "line 2: .* at most 100000 characters"),
    ],
)
def test_invalid_csv_is_rejected_with_its_line(content, message):
    with pytest.raises(FactTableError, match=message):
        parse_csv(content)


@pytest.mark.parametrize(
    ("delimiter", "name"),
    [(";", "';'"), ("\t", "a tab"), ("|", r"'\|'")],
    ids=["semicolon", "tab", "bar"],
)
def test_other_delimiters_get_a_hint(delimiter, name):
    content = "subject,relation,answer\ns,r,a\n".replace(",", delimiter).encode()
    message = (
        f"line 1: no column 'subject', 'relation', 'answer'; .* separated by {name}, expected ','"
    )
    with pytest.raises(FactTableError, match=message):
        parse_csv(content)


def test_a_missing_column_gets_no_hint_at_the_delimiter():
    with pytest.raises(FactTableError, match="line 1: no column 'answer'; the first line must"):
        parse_csv(b"subject,relation\n")


def test_huge_tables_in_small_files_are_rejected():
    rows = b"".join(b"s%d,r%d,a\n" % (i, i) for i in range(11_000))
    with pytest.raises(FactTableError, match="got 11000 × 11000"):
        parse_csv(HEADER + rows)


def test_endless_files_are_rejected(monkeypatch):
    monkeypatch.setattr(csv_files, "_MAX_BYTES", 1000)
    with pytest.raises(FactTableError, match="larger than 1000 bytes"):
        read_csv("/dev/zero")


def test_errors_name_the_file(tmp_path):
    (tmp_path / "bad.csv").write_bytes(HEADER)
    with pytest.raises(FactTableError, match=r"bad\.csv: "):
        read_csv(tmp_path / "bad.csv")
