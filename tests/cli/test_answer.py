"""JSON is one object, and nothing else."""

import json

from factmem.cli.answer import Answer, Output, emit


def test_json_is_one_line_and_nothing_else(capsys):
    answer = Answer({"name": "<b>\x1b\n"}, lambda: "never shown", Output(json=True))
    assert emit(answer) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert json.loads(out) == {"name": "<b>\x1b\n"}
    assert err == ""


def test_numbers_that_are_not_finite_are_null(capsys):
    emit(Answer({"margin": float("inf")}, lambda: "never shown", Output(json=True)))
    assert json.loads(capsys.readouterr().out) == {"margin": None}
