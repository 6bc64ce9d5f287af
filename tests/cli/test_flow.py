"""`factmem flow`."""

import math

import numpy as np
import pytest
from tests.cli.commands import rejected, run_json, run_text

from factmem.facts import FactTable, write_csv

SMALL = ["flow", "--subjects", "8", "--relations", "2", "--answers", "4", "--length", "8"]
QUICK = [*SMALL, "--scale", "1e-3"]


def test_json_has_times_losses_and_stages():
    data = run_json(*SMALL, "--scale", "1e-4")
    keys = ("times", "loss", "relation_loss", "subject_loss", "relation_distance")
    assert {len(data[key]) for key in keys} == {512}
    assert data["loss"][0] == pytest.approx(math.log(8), abs=1e-4)
    assert data["loss"][-1] == pytest.approx(0.01, abs=1e-6)
    assert np.allclose(np.diff(data["times"]), data["times"][-1] / 511)
    stages = data["stages"]
    # The curve says the same as the stages: within 0.1 of log 4 between them, not outside.
    times, loss = np.array(data["times"]), np.array(data["loss"])
    near = times[np.abs(loss - math.log(4)) <= 0.1]
    spacing = times[1]
    assert stages["init_end"] == pytest.approx(near[0], abs=spacing)
    assert stages["hallucination_end"] == pytest.approx(near[-1], abs=spacing)
    assert data["converged_at"] == pytest.approx(times[-1], rel=1e-6)
    assert data["invariant_drift"] < 1e-10
    assert data["levels"]["relation"] == pytest.approx(math.log(4))
    exact, fitted = data["rates"]["exact"], data["rates"]["fitted"]
    assert fitted["relations"] == pytest.approx(exact["relations"], rel=0.03)
    assert fitted["noise"] is None
    assert data["theorem_6"]["conditions_met"] is False
    assert data["learning_rate"] is None


def test_times_can_be_logarithmic_and_end_at_a_given_time():
    data = run_json(*QUICK, "--until", "60", "--points", "31", "--spacing", "log")
    assert np.allclose(data["times"], np.geomspace(0.06, 60, 31), rtol=1e-12)
    assert data["converged_at"] is None
    assert data["stages"]["hallucination_end"] is None
    assert data["stages"]["init_end"] is not None


def test_sgd_is_compared_with_the_flow(tmp_path):
    plot = tmp_path / "flow.svg"
    data = run_json(
        *QUICK,
        *("--method", "sgd", "--steps", "1500", "--batch-size", "64", "--plot", str(plot)),
    )
    assert data["learning_rate"] == 0.1
    assert data["steps"] == 1500
    assert data["times"][-1] == pytest.approx(0.1 * 1500, rel=1e-12)
    assert len(data["times"]) == len(set(data["times"])) == 512
    assert np.ptp(np.diff(data["times"])) < 0.1 + 1e-9
    assert data["exact_flow"]["largest_gap"] < 0.3
    assert data["exact_flow"]["stages"]["init_end"] == pytest.approx(
        data["stages"]["init_end"], rel=0.1
    )
    assert data["rates"] is None
    assert plot.read_bytes().startswith(b"<?xml")


def test_softmax_attention_is_trained_by_sgd():
    data = run_json(
        *SMALL,
        *("--attention", "softmax", "--steps", "16", "--batch-size", "8", "--dim", "16"),
        *("--spacing", "log"),
    )
    assert (data["method"], data["learning_rate"], data["dim"]) == ("sgd", 16.0, 16)
    # Only the last of three decades has steps of 16; each time is reported once.
    assert np.allclose(data["times"], 16 * np.arange(17))
    assert data["exact_flow"] is None


def test_tables_are_structured_random_or_files(tmp_path):
    path = tmp_path / "table.csv"
    write_csv(FactTable.random(8, 2, 4, seed=3), path)
    options = ["--scale", "1e-3", "--length", "8", "--until", "5"]
    read = run_json("flow", "--table", str(path), *options)
    random = run_json(*SMALL[:-2], "--table", "random", "--seed", "3", *options)
    assert read["levels"]["relation"] == pytest.approx(random["levels"]["relation"])
    assert random["levels"]["relation"] < math.log(4)
    assert read["facts"] == 16


def test_text_shows_the_stages():
    text = run_text(*QUICK)
    assert "end of initialization (flow time)" in text
    assert "end of hallucination (flow time)" in text
    assert "│ relation-only loss (nats) │ 1.386 │" in text


def test_a_note_says_why_hallucination_has_no_end():
    early = run_text(*QUICK, "--until", "1")
    assert "Training ended before the loss came within 0.1 of the relation-only loss." in early
    assert "hallucination stage" not in early
    during = run_text(*QUICK, "--until", "60")
    assert "Training ended before the end of the hallucination stage." in during
    one_relation = ["flow", "--subjects", "4", "--relations", "1", "--answers", "4"]
    never = run_text(*one_relation, "--length", "8", "--scale", "1e-3")
    assert "There is no hallucination stage." in never
    assert "Training ended" not in never
    assert "Training ended" not in run_text(*QUICK)


def test_answers_of_a_structured_table_are_as_equally_frequent_as_possible():
    uneven = ["flow", "--subjects", "8", "--relations", "2", "--answers", "3"]
    data = run_json(*uneven, "--length", "8", "--until", "1")
    shares = np.array([3, 3, 2]) / 8
    assert data["levels"]["relation"] == pytest.approx(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--scale", "0"], "--scale must be above 0"),
        (["--scale", "nan"], "--scale must be above 0"),
        (["--scale", "1e-200"], "squares of smaller weights underflow in float64"),
        (["--method", "sgd", "--scale", "1e-40"], "for SGD in float32, got 1e-40"),
        (
            ["--dim", "20"],
            "error: --dim must be at least 21 for orthonormal embeddings of 21 prompt",
        ),
        (["--until", "0"], "--until must be positive and finite"),
        (["--until", "inf"], "--until must be positive and finite"),
        (["--learning-rate", "0.1"], "--learning-rate requires --method sgd"),
        (["--method", "sgd", "--until", "3"], "--until requires --method flow"),
        (
            ["--method", "sgd", "--learning-rate", "-1"],
            "--learning-rate must be positive and finite",
        ),
        (["--attention", "softmax", "--method", "flow"], "cannot be combined with --method flow"),
        (
            ["--attention", "softmax", "--init", "balanced"],
            "cannot be combined with --init balanced",
        ),
        (["--method", "sgd", "--noise", "3000000000"], "--noise must be at most"),
        (["--init", "random", "--noise", "2000000000"], "is too large"),
        (["--method", "sgd", "--batch-size", "100000000"], "--batch-size must be at most 1048576"),
        (["--method", "sgd", "--steps", "10000000000000"], "--steps must be at most"),
        (["--attention", "softmax", "--dim", "1000000"], "is too large"),
        (["--attention", "softmax", "--dim", "9" * 24], "--dim must be at most"),
        (["--points", "1"], "--points must be from 2"),
        (["--zipf", "-1"], "--zipf must be from 0 to 4"),
        (["--zipf", "nan"], "--zipf must be from 0 to 4"),
        (["--table", "nothing.csv"], "--table cannot be combined with"),
        (["--plot", "flow.jpeg"], "error: --plot: the name of a figure must end in .png"),
        (["--plot", "nowhere/flow.png"], "nowhere' does not exist"),
    ],
)
def test_rejects_bad_input(wrong, message):
    assert message in rejected(*SMALL, *wrong)


def test_divergence_is_an_error_with_advice():
    wrong = ["--method", "sgd", "--learning-rate", "1e6", "--steps", "512", "--batch-size", "8"]
    assert rejected(*QUICK, *wrong) == (
        "factmem: error: training with learning rate 1e+06 diverged before step 2; "
        "use a smaller one\n"
    )


def test_a_constant_table_has_no_flow():
    one = ["flow", "--subjects", "3", "--relations", "1", "--answers", "1"]
    assert "no single token carries information" in rejected(*one)
    data = run_json(*one, "--method", "sgd", "--steps", "2", "--batch-size", "4")
    assert data["loss"] == [0, 0, 0]
    assert data["exact_flow"] is None


def test_rejects_tables_that_are_too_large():
    large = ["flow", "--subjects", "1000000", "--relations", "1000", "--answers", "2"]
    assert "is too large" in rejected(*large)


def test_rejects_a_missing_table():
    assert "file 'nothing.csv' does not exist" in rejected("flow", "--table", "nothing.csv")


def test_theorem_6_also_needs_a_balanced_start_and_uniform_subjects():
    enough = ["flow", "--subjects", "32", "--relations", "2", "--answers", "2", "--until", "1"]
    enough += ["--noise", "80", "--length", "5"]
    for more, met in (
        (["--init", "balanced"], True),
        ([], False),
        (["--init", "balanced", "--zipf", "1"], False),
    ):
        assert run_json(*enough, *more)["theorem_6"]["conditions_met"] is met


def test_a_random_start_reports_how_many_prompts_were_sampled():
    data = run_json(*SMALL, "--init", "random", "--scale", "0.1", "--until", "1")
    assert data["sampled_prompts"] == 32 * 16
    assert data["invariant_drift"] < 1e-10


def test_shared_answers_give_a_stage_of_subjects_and_no_hallucination(tmp_path):
    """Subjects are learned first here, and the loss passes H(a | r) on its way."""
    path = tmp_path / "shared.csv"
    rows = ["subject,relation,answer"]
    for r in range(16):
        rows += [f"s0,r{r},a", f"s3,r{r},b"]
        rows += [f"s{s},r{r},{'a' if r < 8 else 'b'}" for s in (1, 2)]
    path.write_text("\n".join(rows) + "\n")
    data = run_json("flow", "--table", str(path), "--until", "500")
    assert data["stages"]["hallucination_end"] is None
    assert data["stages"]["subject_only"] is not None
