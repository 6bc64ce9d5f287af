"""`factmem bounds`: what it says, and what it refuses."""

import json
import math

import pytest
from tests.cli.test_app import refused

from factmem.cli import main


def told(capsys, *arguments):
    assert main(["bounds", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


TABLE = ("--subjects", "32", "--relations", "32", "--answers", "8")


def test_the_example_of_the_contract(capsys):
    data = told(capsys, *TABLE, "--vocabulary", "512")
    assert data["association_bits"] == 3072
    assert round(data["answer_set_bits"], 1) == 1701.6
    assert round(data["unseen_bits"], 1) == 28.5
    assert round(data["bits"], 1) == 4745.1
    assert data["parameters_at_bits_per_weight"]["2"] == math.ceil(data["bits"] / 2)
    assert data["printed_bits"] == 4608
    assert data["vocabulary_needed"] == 512


def test_a_vocabulary_of_the_answers_alone(capsys):
    assert told(capsys, *TABLE)["vocabulary"] == 256


def test_very_many_facts(capsys):
    sizes = ("--subjects", "1000000", "--relations", "1000000", "--answers", "8")
    data = told(capsys, *sizes, "--vocabulary", "100000000")
    assert data["facts"] == 10**12
    assert data["association_bits"] == 3e12
    assert data["bits"] > data["association_bits"]


def test_a_table_of_ones_own(capsys, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("subject,relation,answer\ns,r,a\nt,r,b\n")
    data = told(capsys, "--table", str(path), "--vocabulary", "5")
    # two answers of five, in either order
    assert data["bits"] == pytest.approx(math.log2(20))
    assert main(["bounds", "--table", str(path)]) == 0
    assert "none of them shared" in capsys.readouterr().out


def test_associations(capsys):
    data = told(capsys, "--facts", "100", "--outputs", "32")
    assert data["bits"] == data["association_bits"] == 500
    assert data["answer_set_bits"] == 0
    assert "least_loss_bits" not in data


def test_the_least_loss_of_so_many_bits(capsys):
    data = told(capsys, "--facts", "100", "--outputs", "32", "--bits", "52.5")
    assert data["least_loss_bits"] == pytest.approx(5 * 89.5 / 100)
    assert data["least_loss_nats"] == pytest.approx(5 * 0.895 * math.log(2))
    assert data["printed_least_loss_bits"] == pytest.approx(5 * 0.89)
    steep = told(
        capsys, "--facts", "1000000000000", "--outputs", "32", "--bits", "5", "--zipf", "2"
    )
    assert steep["least_loss_bits"] == pytest.approx(5 * (1 - 6 / math.pi**2), rel=1e-9)


def test_what_a_person_sees(capsys):
    assert main(["bounds", *TABLE, "--vocabulary", "512"]) == 0
    out = capsys.readouterr().out
    assert "3,072.0" in out
    assert "4,745.1" in out
    assert "weights of 16 bits" in out
    arguments = ["--facts", "100", "--outputs", "32", "--bits", "50", "--zipf", "1.5"]
    assert main(["bounds", *arguments]) == 0
    assert "B^-0.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --subjects"),
        (("--subjects", "3"), "--relations and --answers must be given too"),
        (("--facts", "3"), "--outputs must be given too"),
        ((*TABLE, "--facts", "3", "--outputs", "2"), "give --subjects"),
        ((*TABLE, "--table", "x"), "give --subjects"),
        ((*TABLE, "--vocabulary", "255"), "at least 256, not 255"),
        ((*TABLE, "--vocabulary", "0"), "--vocabulary is at least 1"),
        ((*TABLE, "--bits", "3"), "--bits and --zipf go with"),
        (("--table", "no-such-file"), "no-such-file"),
        (("--facts", "0", "--outputs", "2"), "--facts is at least 1"),
        (("--facts", "9" * 30, "--outputs", "2"), "--facts is at most"),
        (
            ("--subjects", "10", "--relations", "4000000", "--answers", "4000000"),
            "at most 1000000000000 facts, and as many words",
        ),
        (("--facts", "3", "--outputs", "2", "--vocabulary", "3"), "--vocabulary goes with"),
        (("--facts", "3", "--outputs", "2", "--bits", "-1"), "--bits is a number from 0"),
        (("--facts", "3", "--outputs", "2", "--bits", "nan"), "--bits is a number from 0"),
        (("--facts", "3", "--outputs", "2", "--zipf", "1"), "matters to --bits alone"),
        (("--facts", "3", "--outputs", "2", "--bits", "1", "--zipf", "-1"), "--zipf is from 0"),
    ],
)
def test_what_is_refused(capsys, arguments, message):
    assert message in refused(capsys, ["bounds", *arguments])
