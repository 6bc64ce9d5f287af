"""`factmem facts` looks at a table."""

import json

import pytest

from factmem.cli import main
from factmem.facts import FactTable, write_csv

HEADER = "subject,relation,answer\n"


@pytest.fixture
def table_file(tmp_path):
    path = tmp_path / "table.csv"
    write_csv(FactTable.structured(16, 4, 8), path)
    return str(path)


def test_json_has_the_keys_of_the_contract(capsys, table_file):
    assert main(["facts", table_file, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    expected = {
        "subjects": 16,
        "relations": 4,
        "answers": 32,
        "answers_per_relation": 8,
        "facts": 64,
        "bits": 192.0,
        "entropy_bits": 192.0,
        "disjoint": True,
        "most_facts_of_an_answer": 2,
        "warnings": [],
    }
    assert {key: found[key] for key in expected} == expected
    assert found["examples"][0] == ["subject 00", "relation 0", "answer 00"]


def test_people_see_sizes_bits_and_examples(capsys, table_file):
    assert main(["facts", table_file]) == 0
    out, _ = capsys.readouterr()
    for shown in ("64", "192.0 bits", "subject 00", "relation 0"):
        assert shown in out


def test_names_are_shown_as_text_not_as_markup_or_escape_codes(capsys, tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text(HEADER + '[red]bold[/red],"<b>\x1b[31m",":smile:"\n')
    assert main(["facts", str(path)]) == 0
    out, _ = capsys.readouterr()
    for shown in ("[red]bold[/red]", "<b>\\x1b[31m", ":smile:"):
        assert shown in out
    assert "\x1b" not in out


def test_warnings_are_shown(capsys, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "a,r,x\nb,r,y\na,q,x\n")
    assert main(["facts", str(path), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert len(warnings) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file is empty"),
        (b"a,b\n", "line 1"),
        (HEADER.encode(), "no facts"),
        (b"\x89PNG\r\n\x1a\n\x00", "line 1: this is not UTF-8"),
        (HEADER.encode() + b"s,r,a\ns,r,b\n", "line 3"),
    ],
)
def test_bad_tables_are_refused(capsys, tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    assert main(["facts", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("path", ["no such file.csv", ".", "nul\0inside", "a" * 5000])
def test_bad_paths_are_refused(capsys, path):
    assert main(["facts", path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
