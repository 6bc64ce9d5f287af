"""What commands print: one JSON object for programs, tables and notes for people."""

import errno
import json

import pytest

from factmem.cli.render import (
    TIME_LABELS,
    CommandResult,
    OutputOptions,
    emit,
    render_table,
    requirement_notes,
    to_text,
)

JSON = OutputOptions(json=True)
LABELS = {"facts": "facts", "margin": "smallest margin", "status": "status", **TIME_LABELS}


def never():
    raise AssertionError("rendered in spite of --json")


def test_json_is_one_line_and_nothing_else(capsys):
    assert emit(CommandResult({"name": "<b>\x1b\n"}, never, JSON)) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert json.loads(out) == {"name": "<b>\x1b\n"}
    assert err == ""


def test_numbers_that_are_not_finite_are_null(capsys):
    emit(CommandResult({"margin": float("inf")}, never, JSON))
    assert json.loads(capsys.readouterr().out) == {"margin": None}


def test_write_errors_name_stdout(monkeypatch):
    class FullDisk:
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdout", FullDisk())
    with pytest.raises(OSError, match="'<stdout>'"):
        emit(CommandResult({}, never, JSON))


def test_rows_are_values_with_a_label_that_are_known():
    data = {"facts": 12345, "margin": None, "status": "step_limit", "seconds": 0.123456, "seed": 7}
    text = to_text(render_table("title", LABELS, data, ["A note."]))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "title"
    assert "│ facts │ 12,345 │" in lines
    assert "│ status │ step_limit │" in lines
    assert "│ time (s) │ 0.1235 │" in lines
    assert "margin" not in text
    assert "seed" not in text
    assert lines[-1] == "A note."


def test_values_are_not_read_as_markup():
    text = to_text(render_table("[b]t", {"name": "name"}, {"name": "[red]x"}, ["[u]"]))
    for part in ("[b]t", "[red]x", "[u]"):
        assert part in text


def test_a_note_says_that_a_requirement_is_not_met():
    assert requirement_notes(True, 0.9) == []
    assert requirement_notes(False, 0.9) == ["The accuracy is below the required 0.9."]
