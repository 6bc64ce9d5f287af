"""`factmem construct`: its JSON, its text, its errors."""

import pytest
from tests.cli.commands import rejected, run_json, run_text

from factmem.cli import main, progress

KEYS = {
    *("heads", "head_dim", "parameters", "total_parameters", "facts", "facts_per_parameter"),
    *("accuracy", "min_margin", "min_relative_margin", "denoiser_margin", "status", "seconds"),
}
SMALL = ("--subjects", 4, "--relations", 3, "--answers", 2)
SHAPE = ("--dim", 8, "--heads", 4, "--head-dim", 1, "--width", 8)


def test_attention():
    data = run_json(
        "construct", "attention", *SMALL, "--dim", 128, "--head-dim", 64, "--block-size", 2
    )  # fmt: skip
    assert set(data) >= KEYS
    assert (data["heads"], data["head_dim"], data["block_size"]) == (4, 64, 2)
    assert data["parameters"] == 4 * 4 * 128 * 64
    assert data["facts_per_parameter"] == 12 / data["parameters"]
    tokens = 4 + 3 + 7 + 1 + 6
    assert data["total_parameters"] == data["parameters"] + tokens * 128
    assert data["accuracy"] == 1.0
    assert data["notes"] == []


def test_mlp():
    data = run_json(
        "construct", "mlp", *SMALL, "--dim", 64, "--head-dim", 32, "--width", 4, "--noise", 5
    )
    assert set(data) >= KEYS
    assert data["width"] == 4
    assert data["parameters"] == 4 * data["heads"] * 64 * 32 + 2 * 4 * 64


@pytest.fixture(scope="module")
def table_file(tmp_path_factory):
    """A table in which one question has no answer and relations share answers."""
    path = tmp_path_factory.mktemp("tables") / "facts.csv"
    path.write_text("subject,relation,answer\na,x,1\na,y,2\nb,x,2\nb,y,1\nc,x,3\n")
    return path


def test_compiled():
    arguments = ("construct", "compiled", *SMALL, *SHAPE, "--require", 1)
    data = run_json(*arguments)
    assert set(data) >= KEYS | {"certified_accuracy", "min_certified_margin", "max_attention_leak"}
    assert data["certified_accuracy"] == data["accuracy"] == 1.0
    assert 0 < data["min_certified_margin"] <= data["min_margin"]
    assert data["parameters"] == 4 * 4 * 8 + 2 * 8 * 8
    assert data["status"] == "certified"
    assert data["probes"] == []
    text = run_text(*arguments)
    assert "│ certified accuracy │ 1 │" in text
    assert "│ status │ certified │" in text
    assert "max attention leak" in text
    assert f"│ facts in the table per parameter │ {12 / 256:.4g} │" in text
    assert "compile time (s)" in text


def test_compiled_searches_for_the_smallest_shape():
    data = run_json(
        "construct", "compiled", "--subjects", 3, "--relations", 3, "--answers", 2, "--dim", 8
    )
    assert data["certified_accuracy"] == 1.0
    assert data["dim"] == 8
    certified = [shape for shape in data["probes"] if shape["certified_accuracy"] == 1]
    assert data["parameters"] == min(shape["parameters"] for shape in certified)


def test_progress_counts_iterations(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    assert main(["construct", "compiled", *map(str, (*SMALL, *SHAPE))]) == 0
    lines = capsys.readouterr().err
    assert lines.startswith("compiled: 125 iterations, left 875, loss ")
    assert "\ncompiled: certificate 12 of 12 facts\n" in lines
    assert "recall: 12 prompts, left " in lines
    assert lines.splitlines()[-1].endswith(" prompts, left 0")


def test_notes_about_open_questions_and_shared_answers(table_file):
    data = run_json(
        *("construct", "attention", "--table", table_file),
        *("--dim", 64, "--head-dim", 64, "--block-size", 1),
    )
    assert (data["facts"], data["subjects"]) == (5, 3)
    open_question, shared = data["notes"]
    assert open_question.startswith("1 of 6 ")
    assert shared.startswith("4 of 5 facts ")
    compiled = run_json("construct", "compiled", "--table", table_file, *SHAPE)
    assert compiled["certified_accuracy"] == 1.0


def test_a_requirement_that_is_not_met_is_exit_code_1():
    arguments = ("construct", "attention", *SMALL, "--dim", 8, "--head-dim", 2, "--block-size", 4)
    data = run_json(*arguments, "--require", 1, code=1)
    assert data["accuracy"] < 1
    assert data["denoiser_margin"] < 0
    text = run_text(*arguments, "--require", 1, code=1)
    assert "The accuracy is below the required 1.0." in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("attention", "--dim", 8, "--head-dim", 4), "--answers are required, or --table"),
        (
            ("attention", *SMALL, "--table", "x", "--dim", 8, "--head-dim", 4),
            "--table cannot be combined with",
        ),
        (("attention", *SMALL, "--dim", 8), "--head-dim is required for attention"),
        (("attention", *SMALL, "--head-dim", 8), "--dim is required for attention"),
        (
            ("attention", *SMALL, "--dim", 8, "--head-dim", 4, "--heads", 2),
            "--heads cannot be used with attention",
        ),
        (
            ("attention", *SMALL, "--dim", 8, "--head-dim", 4, "--width", 2),
            "--width cannot be used with attention",
        ),
        (
            ("attention", *SMALL, "--dim", 8, "--head-dim", 9),
            "error: --head-dim must be from 1 to dim = 8, got 9\n",
        ),
        (("attention", *SMALL, "--dim", 1, "--head-dim", 1), "error: --dim must be at least 2"),
        (("mlp", *SMALL, "--dim", 8, "--head-dim", 4), "--width is required for mlp"),
        (
            ("mlp", *SMALL, "--dim", 8, "--head-dim", 4, "--width", 0),
            "--width must be at least 1, got 0",
        ),
        (("compiled", *SMALL, "--dim", 8, "--heads", 2), "--head-dim is required for compiled"),
        (
            ("compiled", *SMALL, "--heads", 2, "--head-dim", 1, "--width", 1),
            "--dim is required for compiled",
        ),
        (("compiled", *SMALL, *SHAPE[:-1], -1), "--width must be at least 0"),
        (
            ("compiled", *SMALL, *SHAPE, "--block-size", 2),
            "--block-size cannot be used with compiled",
        ),
        (("compiled", *SMALL, *SHAPE, "--length", 2), "--length must be from 3"),
        (("compiled", *SMALL, *SHAPE, "--seed", -1), "--seed must be from 0"),
        (("compiled", *SMALL, *SHAPE, "--require", 2), "--require must be an accuracy"),
        (("compiled", *SMALL, *SHAPE, "--noise", 0), "--noise must be at least 1"),
        (("compiled", *SMALL, *SHAPE, "--prompts", 0), "--prompts must be at least 1"),
        (("compiled", "--table", "nowhere.csv"), "file 'nowhere.csv' does not exist"),
        (("compiled", *SMALL, "--dim", 60000), "--dim must be at most 16384, got 60000"),
        (("compiled", "--subjects", 0, *SMALL[2:]), "--subjects must be at least 1"),
        (("compiled", *SMALL, "--dim", 8, "--heads", 1, "--head-dim", 1, "--width", 2), "1 key "),
        (("compiled", *SMALL, "--noise", 10**9), "is too large"),
        (("compiled", *SMALL[:-1], 10**9), "is too large"),
        (
            ("compiled", *SMALL, *SHAPE[:2], "--heads", 10**5, *SHAPE[4:]),
            "error: --heads must be at most 10000",
        ),
        (("something", *SMALL), "something"),
    ],
)
def test_rejects_bad_input(arguments, message):
    assert message in rejected("construct", *arguments)
