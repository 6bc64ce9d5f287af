"""`factmem bounds`."""

import math

import pytest
from tests.cli.commands import rejected, run_json, run_text

TABLE = ("--subjects", "32", "--relations", "32", "--answers", "8")
MAP = ("--facts", "100", "--outputs", "32")


def test_bits_of_a_random_table():
    data = run_json("bounds", *TABLE, "--vocabulary", "512")
    assert data["association_bits"] == 3072
    assert round(data["answer_set_bits"], 1) == 1701.6
    assert round(data["unused_answer_bits"], 1) == 28.5
    assert round(data["bits"], 1) == 4745.1
    assert data["parameters_at_bits_per_weight"]["2"] == math.ceil(data["bits"] / 2)
    assert data["paper_bits"] == 4608
    assert data["vocabulary_needed"] == 512


def test_the_default_vocabulary_is_the_answers():
    assert run_json("bounds", *TABLE)["vocabulary"] == 256


def test_bits_of_a_trillion_facts():
    sizes = ("--subjects", "1000000", "--relations", "1000000", "--answers", "8")
    data = run_json("bounds", *sizes, "--vocabulary", "100000000")
    assert data["facts"] == 10**12
    assert data["association_bits"] == 3e12
    assert data["bits"] > data["association_bits"]


def test_bits_of_a_csv_table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("subject,relation,answer\ns,r,a\nt,r,b\n")
    data = run_json("bounds", "--table", path, "--vocabulary", "5")
    # two answers of five, in either order
    assert data["bits"] == pytest.approx(math.log2(20))
    assert "none of them shared" in run_text("bounds", "--table", path)


def test_bits_of_associations():
    data = run_json("bounds", *MAP)
    assert data["bits"] == data["association_bits"] == 500
    assert data["answer_set_bits"] == 0
    assert "min_loss_bits" not in data


def test_smallest_loss_of_a_model_with_given_bits():
    data = run_json("bounds", *MAP, "--bits", "52.5")
    assert data["min_loss_bits"] == pytest.approx(5 * 89.5 / 100)
    assert data["min_loss_nats"] == pytest.approx(5 * 0.895 * math.log(2))
    assert data["paper_min_loss_bits"] == pytest.approx(5 * 0.89)
    steep = run_json(
        "bounds", "--facts", "1000000000000", "--outputs", "32", "--bits", "5", "--zipf", "2"
    )
    assert steep["min_loss_bits"] == pytest.approx(5 * (1 - 6 / math.pi**2), rel=1e-9)


def test_text_shows_bits_and_parameters():
    text = run_text("bounds", *TABLE, "--vocabulary", "512")
    assert "3,072.0" in text
    assert "│ bits needed for zero loss │ 4,745.1 │" in text
    assert "parameters with 16-bit weights" in text


def test_text_states_the_bound_of_theorem_8_only_where_it_applies():
    small = ("bounds", "--subjects", "8", "--relations", "2", "--answers", "4")
    text = run_text(*small)
    assert "of Theorem 8 is not applicable here: |V| = 8 is below 16." in text
    assert "40.0" not in text
    text = run_text(*small, "--vocabulary", "16")
    assert "which is 48.0 bits for c = 0, if S ≥ C · 17.9, with constants c and C." in text
    assert "|V| ≥ 16 is met" in text


def test_text_of_a_map_has_no_rows_of_relations():
    text = run_text("bounds", *MAP, "--bits", "50", "--zipf", "1.5")
    assert "│ bits for the answer of each fact │ 500.0 │" in " ".join(text.split())
    assert "of each relation" not in text
    assert "unused answers" not in text
    assert "B^-0.5" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either --subjects"),
        (("--subjects", "3"), "--relations and --answers are also required"),
        (("--facts", "3"), "--outputs is also required"),
        ((*TABLE, *MAP), "give either --subjects"),
        ((*TABLE, "--table", "x"), "give either --subjects"),
        ((*TABLE, "--vocabulary", "255"), "error: --vocabulary must be at least 256"),
        ((*TABLE, "--vocabulary", "0"), "--vocabulary must be at least 1, got 0"),
        ((*TABLE, "--bits", "3"), "--bits and --zipf require --facts and --outputs"),
        (("--table", "no-such-file"), "file 'no-such-file' does not exist"),
        (("--facts", "0", "--outputs", "2"), "--facts must be at least 1"),
        (("--facts", "9" * 30, "--outputs", "2"), "--facts must be at most"),
        (
            ("--subjects", "10", "--relations", "4000000", "--answers", "4000000"),
            "at most 1000000000000 facts and as many words, got 40000000 facts and "
            "16000000000000 words",
        ),
        ((*MAP, "--vocabulary", "3"), "--vocabulary cannot be combined with --facts"),
        ((*MAP, "--bits", "-1"), "--bits must be a finite number of at least 0, got -1"),
        ((*MAP, "--bits", "nan"), "--bits must be a finite number of at least 0, got nan"),
        ((*MAP, "--zipf", "1"), "--zipf requires --bits"),
        ((*MAP, "--bits", "1", "--zipf", "-1"), "--zipf must be from 0 to 1000, got -1"),
    ],
)
def test_rejects_bad_input(arguments, message):
    assert message in rejected("bounds", *arguments)
