"""`factmem flow` from the command line."""

import json
import math

import numpy as np
import pytest

from factmem.cli import main
from factmem.facts import FactTable, write_csv

SMALL = ["flow", "--subjects", "8", "--relations", "2", "--answers", "4", "--length", "8"]
QUICK = [*SMALL, "--scale", "1e-3"]


def found(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    assert main([*arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_the_flow_tells_times_losses_and_stages(capsys):
    data = found(capsys, *SMALL, "--scale", "1e-4")
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
    assert data["rate"] is None


def test_times_are_logarithmic_on_request_and_end_where_it_is_said(capsys):
    data = found(capsys, *QUICK, "--until", "60", "--points", "31", "--spacing", "log")
    assert np.allclose(data["times"], np.geomspace(0.06, 60, 31), rtol=1e-12)
    assert data["converged_at"] is None
    assert data["stages"]["hallucination_end"] is None
    assert data["stages"]["init_end"] is not None


def test_sgd_is_compared_with_the_flow(capsys, tmp_path):
    plot = tmp_path / "flow.svg"
    data = found(
        capsys,
        *QUICK,
        *("--method", "sgd", "--steps", "1500", "--batch", "64", "--plot", str(plot)),
    )
    assert data["rate"] == 0.1
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


def test_a_softmax_head_is_trained_by_sgd(capsys):
    data = found(
        capsys,
        *SMALL,
        *("--attention", "softmax", "--steps", "16", "--batch", "8", "--dim", "16"),
        *("--spacing", "log"),
    )
    assert (data["method"], data["rate"], data["dim"]) == ("sgd", 16.0, 16)
    # Of three decades it has the last, in steps of 16: each of them once.
    assert np.allclose(data["times"], 16 * np.arange(17))
    assert data["exact_flow"] is None


def test_tables_are_structured_random_or_files(capsys, tmp_path):
    path = tmp_path / "table.csv"
    write_csv(FactTable.random(8, 2, 4, seed=3), path)
    asked = ["--scale", "1e-3", "--length", "8", "--until", "5"]
    read = found(capsys, "flow", "--table", str(path), *asked)
    drawn = found(capsys, *SMALL[:-2], "--table", "random", "--seed", "3", *asked)
    assert read["levels"]["relation"] == pytest.approx(drawn["levels"]["relation"])
    assert drawn["levels"]["relation"] < math.log(4)
    assert read["facts"] == 16


def test_people_see_the_stages(capsys):
    assert main(QUICK) == 0
    out, _ = capsys.readouterr()
    assert "initialization ends at the time" in out
    assert "hallucination ends at the time" in out
    assert main([*QUICK, "--until", "1"]) == 0
    assert "its end was not reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--scale", "0"], "--scale is above 0"),
        (["--scale", "nan"], "--scale is above 0"),
        (["--scale", "1e-200"], "float64 cannot leave zero"),
        (["--method", "sgd", "--scale", "1e-40"], "float32 cannot leave zero"),
        (["--dim", "20"], "21 tokens of prompts cannot have orthonormal embeddings in 20"),
        (["--until", "0"], "--until is a number above 0"),
        (["--until", "inf"], "--until is a number above 0"),
        (["--rate", "0.1"], "--rate belongs to --method sgd"),
        (["--method", "sgd", "--until", "3"], "--until belongs to --method flow"),
        (["--method", "sgd", "--rate", "-1"], "--rate is a number above 0"),
        (["--attention", "softmax", "--method", "flow"], "softmax attention has sgd"),
        (["--attention", "softmax", "--start", "balanced"], "leave --start out"),
        (["--method", "sgd", "--noise", "3000000000"], "--noise is at most"),
        (["--start", "random", "--noise", "2000000000"], "more than an array here may have"),
        (["--method", "sgd", "--batch", "100000000"], "--batch is at most 1048576"),
        (["--method", "sgd", "--steps", "10000000000000"], "--steps is at most"),
        (["--attention", "softmax", "--dim", "1000000"], "more than an array here may have"),
        (["--attention", "softmax", "--dim", "9" * 24], "--dim is at most"),
        (["--points", "1"], "--points is from 2"),
        (["--zipf", "-1"], "--zipf is from 0 to 4"),
        (["--zipf", "nan"], "--zipf is from 0 to 4"),
        (["--table", "nothing.csv"], "give no sizes"),
        (["--plot", "flow.jpeg"], "ends in .png, .pdf or .svg"),
        (["--plot", "nowhere/flow.png"], "there is no folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(capsys, wrong, message):
    assert message in refused(capsys, *SMALL, *wrong)


def test_steps_that_diverge_are_refused_with_advice(capsys):
    wrong = ["--method", "sgd", "--rate", "1e6", "--steps", "512", "--batch", "8"]
    assert "take a smaller one" in refused(capsys, *QUICK, *wrong)


def test_a_table_that_gives_nothing_to_learn_has_no_flow(capsys):
    one = ["flow", "--subjects", "3", "--relations", "1", "--answers", "1"]
    assert "no token alone says anything" in refused(capsys, *one)
    data = found(capsys, *one, "--method", "sgd", "--steps", "2", "--batch", "4")
    assert data["loss"] == [0, 0, 0]
    assert data["exact_flow"] is None


def test_tables_too_large_to_follow_are_refused(capsys):
    large = ["flow", "--subjects", "1000000", "--relations", "1000", "--answers", "2"]
    assert "more than an array here may have" in refused(capsys, *large)


def test_a_missing_table_is_named(capsys):
    assert "there is no file 'nothing.csv'" in refused(capsys, "flow", "--table", "nothing.csv")


def test_the_sizes_alone_do_not_meet_the_conditions_of_theorem_6(capsys):
    enough = ["flow", "--subjects", "32", "--relations", "2", "--answers", "2", "--until", "1"]
    enough += ["--noise", "80", "--length", "5"]
    for more, met in (
        (["--start", "balanced"], True),
        ([], False),
        (["--start", "balanced", "--zipf", "1"], False),
    ):
        assert found(capsys, *enough, *more)["theorem_6"]["conditions_met"] is met


def test_a_start_that_differs_on_noise_says_how_many_prompts_stand_for_all(capsys):
    data = found(capsys, *SMALL, "--start", "random", "--scale", "0.1", "--until", "1")
    assert data["sampled_prompts"] == 32 * 16
    assert data["invariant_drift"] < 1e-10


def test_relations_that_share_all_answers_make_no_stage_of_their_own(capsys, tmp_path):
    """Subjects are learned first here, and the loss passes H(a | r) on its way."""
    path = tmp_path / "shared.csv"
    rows = ["subject,relation,answer"]
    for r in range(16):
        rows += [f"s0,r{r},a", f"s3,r{r},b"]
        rows += [f"s{s},r{r},{'a' if r < 8 else 'b'}" for s in (1, 2)]
    path.write_text("\n".join(rows) + "\n")
    data = found(capsys, "flow", "--table", str(path), "--until", "500")
    assert data["stages"]["hallucination_end"] is None
    assert data["stages"]["subject_only"] is not None
