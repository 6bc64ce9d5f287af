"""`factmem construct`: JSON keys, what it refuses, what a person sees."""

import json

import pytest

from factmem.cli import main

from .test_app import refused

KEYS = {
    "heads",
    "head_dim",
    "parameters",
    "stored_numbers",
    "facts",
    "accuracy",
    "min_margin",
    "relative_margin",
    "denoiser_margin",
    "facts_per_parameter",
    "seconds",
}
SMALL = ("--subjects", 4, "--relations", 3, "--answers", 2)
SHAPE = ("--dim", 8, "--heads", 4, "--head-dim", 1, "--width", 8)


def asked(capsys, *arguments, code=0):
    assert main(["construct", *map(str, arguments), "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def test_attention(capsys):
    found = asked(capsys, "attention", *SMALL, "--dim", 128, "--head-dim", 64, "--block", 2)
    assert set(found) >= KEYS
    assert (found["heads"], found["head_dim"], found["block"]) == (4, 64, 2)
    assert found["parameters"] == 4 * 4 * 128 * 64
    assert found["facts_per_parameter"] == 12 / found["parameters"]
    tokens = 4 + 3 + 7 + 1 + 6
    assert found["stored_numbers"] == found["parameters"] + tokens * 128
    assert found["accuracy"] == 1.0
    assert found["notes"] == []


def test_mlp(capsys):
    found = asked(capsys, "mlp", *SMALL, "--dim", 64, "--head-dim", 32, "--width", 4, "--noise", 5)
    assert set(found) >= KEYS
    assert found["width"] == 4
    assert found["parameters"] == 4 * found["heads"] * 64 * 32 + 2 * 4 * 64


def test_compiled(capsys):
    found = asked(capsys, "compiled", *SMALL, *SHAPE, "--require", 1)
    assert set(found) >= KEYS | {"certified_accuracy", "min_certified_margin"}
    assert found["certified_accuracy"] == found["accuracy"] == 1.0
    assert 0 < found["min_certified_margin"] <= found["min_margin"]
    assert found["parameters"] == 4 * 4 * 8 + 2 * 8 * 8
    assert found["tried"] == []


def test_the_smallest_shape_is_searched_for(capsys):
    found = asked(capsys, "compiled", "--subjects", 3, "--relations", 3, "--answers", 2, "--dim", 8)
    assert found["certified_accuracy"] == 1.0
    assert found["dim"] == 8
    best = [shape for shape in found["tried"] if shape["certified_accuracy"] == 1]
    assert found["parameters"] == min(shape["parameters"] for shape in best)


def test_a_table_with_open_questions_and_shared_answers(capsys, tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("subject,relation,answer\na,x,1\na,y,2\nb,x,2\nb,y,1\nc,x,3\n")
    found = asked(capsys, "attention", "--table", path, "--dim", 64, "--head-dim", 64, "--block", 1)
    assert (found["facts"], found["subjects"]) == (5, 3)
    open_question, shared = found["notes"]
    assert open_question.startswith("1 of 6 questions have no fact")
    assert shared.startswith("4 of 5 facts have another answer in A_s ∩ A_r")
    compiled = asked(capsys, "compiled", "--table", path, *SHAPE)
    assert compiled["certified_accuracy"] == 1.0


def test_what_was_required_and_not_reached(capsys):
    arguments = ("attention", *SMALL, "--dim", 8, "--head-dim", 2, "--block", 4)
    found = asked(capsys, *arguments, "--require", 1, code=1)
    assert found["accuracy"] < 1
    assert found["denoiser_margin"] < 0
    assert main(["construct", *map(str, arguments), "--require", "1"]) == 1
    assert "below the 1.0 that was required" in capsys.readouterr().out


def test_what_a_person_sees(capsys):
    assert main(["construct", "compiled", *map(str, (*SMALL, *SHAPE))]) == 0
    out, _ = capsys.readouterr()
    assert "certified accuracy" in out
    assert "facts per parameter" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("attention", "--dim", 8, "--head-dim", 4), "--subjects, --relations and --answers"),
        (("attention", *SMALL, "--table", "x", "--dim", 8, "--head-dim", 4), "give no sizes"),
        (("attention", *SMALL, "--dim", 8), "attention needs --head-dim"),
        (("attention", *SMALL, "--head-dim", 8), "attention needs --dim"),
        (("attention", *SMALL, "--dim", 8, "--head-dim", 4, "--heads", 2), "has no --heads"),
        (("attention", *SMALL, "--dim", 8, "--head-dim", 4, "--width", 2), "has no --width"),
        (("attention", *SMALL, "--dim", 8, "--head-dim", 9), "d_h = 9 needs d of at least 9"),
        (("attention", *SMALL, "--dim", 1, "--head-dim", 1), "d of at least 2"),
        (("mlp", *SMALL, "--dim", 8, "--head-dim", 4), "mlp needs --width"),
        (("mlp", *SMALL, "--dim", 8, "--head-dim", 4, "--width", 0), "--width is at least 1"),
        (("compiled", *SMALL, "--dim", 8, "--heads", 2), "together, or none"),
        (("compiled", *SMALL, "--heads", 2, "--head-dim", 1, "--width", 1), "needs --dim"),
        (("compiled", *SMALL, *SHAPE[:-1], -1), "--width is at least 0"),
        (("compiled", *SMALL, *SHAPE, "--block", 2), "compiled has no --block"),
        (("compiled", *SMALL, *SHAPE, "--length", 2), "--length is from 3"),
        (("compiled", *SMALL, *SHAPE, "--seed", -1), "--seed is from 0"),
        (("compiled", *SMALL, *SHAPE, "--require", 2), "--require is an accuracy"),
        (("compiled", *SMALL, *SHAPE, "--noise", 0), "--noise is at least 1"),
        (("compiled", *SMALL, *SHAPE, "--prompts", 0), "--prompts is at least 1"),
        (("compiled", "--table", "nowhere.csv"), "there is no file 'nowhere.csv'"),
        (("compiled", *SMALL, "--dim", 60000), "--dim is at most 16384, not 60000"),
        (("compiled", "--subjects", 0, *SMALL[2:]), "--subjects is at least 1"),
        (("compiled", *SMALL, "--dim", 8, "--heads", 1, "--head-dim", 1, "--width", 2), "1 keys"),
        (("compiled", *SMALL, "--noise", 10**9), "more than an array here may have"),
        (("compiled", *SMALL[:-1], 10**9), "more than an array here may have"),
        (("compiled", *SMALL, *SHAPE[:2], "--heads", 10**5, *SHAPE[4:]), "at most 10000 heads"),
        (("something", *SMALL), "something"),
    ],
)
def test_what_is_refused(capsys, arguments, message):
    assert message in refused(capsys, ["construct", *map(str, arguments)])
