"""`factmem facts`."""

import pytest
from tests.cli.commands import rejected, run_json, run_text

from factmem.facts import FactTable, write_csv

HEADER = "subject,relation,answer\n"


@pytest.fixture
def table_file(tmp_path):
    path = tmp_path / "table.csv"
    write_csv(FactTable.structured(16, 4, 8), path)
    return str(path)


def test_json_describes_the_table(table_file):
    data = run_json("facts", table_file)
    expected = {
        "subjects": 16,
        "relations": 4,
        "answers": 32,
        "answers_per_relation": 8,
        "facts": 64,
        "bits": 192.0,
        "entropy_bits": 192.0,
        "disjoint": True,
        "max_facts_per_answer": 2,
        "warnings": [],
    }
    assert {key: data[key] for key in expected} == expected
    assert data["examples"][0] == ["subject 00", "relation 0", "answer 00"]


def test_text_shows_sizes_bits_and_examples(table_file):
    text = run_text("facts", table_file)
    for part in ("│ facts │ 64 │", "│ information (bits) │ 192.0 │", "subject 00", "relation 0"):
        assert part in text


def test_names_are_not_read_as_markup_or_escape_codes(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text(HEADER + '[red]bold[/red],"<b>\x1b[31m",":smile:"\n')
    text = run_text("facts", path)
    for part in ("[red]bold[/red]", "<b>\\x1b[31m", ":smile:"):
        assert part in text
    assert "\x1b" not in text


def test_reports_warnings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "a,r,x\nb,r,y\na,q,x\n")
    assert len(run_json("facts", path)["warnings"]) == 3
    assert run_text("facts", path).count("Warning: ") == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"a,b\n", "line 1"),
        (HEADER.encode(), "no facts"),
        (b"\x89PNG\r\n\x1a\n\x00", "line 1: not UTF-8"),
        (HEADER.encode() + b"s,r,a\ns,r,b\n", "line 3"),
    ],
)
def test_rejects_bad_tables(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    assert message in rejected("facts", path, "--json")


@pytest.mark.parametrize("path", ["no such file.csv", ".", "nul\0inside", "a" * 5000])
def test_rejects_bad_paths(path):
    rejected("facts", path)
