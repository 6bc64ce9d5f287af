"""`emit` prints one JSON object, or text."""

import errno
import json

import pytest

from factmem.cli.output import CommandResult, OutputOptions, emit

JSON = OutputOptions(json=True)


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
