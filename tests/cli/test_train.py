"""`factmem train`: its JSON, its files, its errors, and that a killed training resumes exactly."""

import json
import os
import random
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from tests.cli.commands import PROGRAM, rejected, run_json, run_text

from factmem import training
from factmem._core.errors import FactmemError
from factmem._core.threads import use_one_thread
from factmem.cli.train import TrainingOptions
from factmem.transformer import load_transformer

FACTS = ("--subjects", "6", "--relations", "5", "--answers", "3", "--length", "8")
SHAPE = ("--dim", "12", "--heads", "3", "--head-dim", "4", "--width", "10")
SHORT = ("--steps", "60", "--batch-size", "64")
TRAIN = ("train", *FACTS, *SHAPE)


def test_json_reports_the_training():
    data = run_json(*TRAIN, *SHORT)
    for key in (
        *("parameters", "facts", "accuracy", "best_accuracy", "learning_rate", "steps"),
        *("seconds", "compile_seconds", "steps_per_second"),
    ):
        assert isinstance(data[key], int | float), key
    assert data["parameters"] == 4 * 3 * 12 * 4 + 2 * 10 * 12
    assert data["facts"] == 30
    assert (data["learning_rate"], data["optimizer"]) == (0.01, "adam")
    (run,) = data["runs"]
    assert data["status"] == run["status"] == "step_limit"
    assert run["evaluations"]["steps"][-1] == run["steps"] == data["steps"] == 60
    assert max(run["evaluations"]["accuracy"]) == data["best_accuracy"]
    assert 0 <= data["worst_case_accuracy"] <= data["accuracy"] <= 1
    assert data["success"] == (data["best_accuracy"] > 0.99)


def test_muon_has_its_own_learning_rate():
    data = run_json(*TRAIN, *SHORT, "--optimizer", "muon")
    assert (data["optimizer"], data["learning_rate"]) == ("muon", 0.05)


def test_hard_noise_is_an_option_of_every_protocol():
    from factmem.training import BEST

    data = run_json(*TRAIN, *SHORT, "--hard-noise", "0.5")
    assert data["hard_noise"] == 0.5
    options = TrainingOptions(protocol="best", hard_noise=0.25)
    assert options.to_protocol() == replace(BEST, hard_noise=0.25)
    assert "--hard-noise must be between 0 and 1, got 2" in rejected(*TRAIN, "--hard-noise", "2")


def test_writes_files_and_resumes_from_a_checkpoint(tmp_path):
    model, plot, checkpoint = (str(tmp_path / name) for name in ("m.safetensors", "p.png", "c"))
    arguments = (*TRAIN, *SHORT, "--out", model, "--plot", plot, "--checkpoint", checkpoint)
    first = run_json(*arguments)
    assert load_transformer(model).shape.parameters == first["parameters"]
    assert not first["resumed"]
    assert {path.name for path in tmp_path.iterdir()} == {"m.safetensors", "p.png", "c"}
    again = run_json(*arguments)
    assert again["resumed"]
    assert again["steps_per_second"] is None
    assert again["runs"] == first["runs"]
    assert "another training" in rejected(*arguments, "--seed", "1")
    fresh = run_json(*arguments, "--fresh", "--seed", "1")
    assert fresh["runs"] != first["runs"]
    assert not fresh["resumed"]
    message = rejected(*TRAIN, *SHORT, "--checkpoint", model, "--fresh")
    assert "m.safetensors' is not a factmem checkpoint" in message
    assert load_transformer(model), "a file that is no checkpoint is left alone"


def test_a_requirement_that_is_not_met_is_exit_code_1():
    text = run_text(*TRAIN, *SHORT, "--require", "1", code=1)
    assert "The accuracy is below the required 1.0." in text
    assert "accuracy (all facts, new noise)" in text
    assert "│ status │ step_limit │" in text
    assert f"│ facts in the table per parameter │ {30 / 816:.4g} │" in text


def test_options_make_a_protocol():
    from factmem.training import BEST, PAPER

    assert TrainingOptions(protocol="paper").to_protocol() == PAPER
    assert TrainingOptions(protocol="best").to_protocol() == BEST
    assert TrainingOptions().to_protocol() == replace(PAPER, learning_rates=(1e-2,))
    expected = replace(BEST, learning_rates=(0.2,), steps=50, batch_size=9, evaluations=50)
    options = TrainingOptions(steps=50, batch_size=9, learning_rate=0.2, optimizer="muon")
    assert options.to_protocol() == expected
    assert TrainingOptions(steps=1000, optimizer="adam").to_protocol().evaluations == 128


def test_reports_the_best_of_three_learning_rates(monkeypatch):
    settings = {
        "learning_rates": (1e-6, 2e-2, 1e30),
        "steps": 120,
        "evaluations": 12,
        "batch_size": 64,
    }
    paper = replace(training.PAPER, **settings, test_prompts=256, criterion=0.8)
    monkeypatch.setattr(training, "PAPER", paper)
    data = run_json(*TRAIN, "--protocol", "paper", "--require", "0.5")
    assert data["learning_rate"] == 2e-2
    assert data["success"]
    assert data["status"] == "criterion_reached"
    assert [run["learning_rate"] for run in data["runs"]] == [1e-6, 2e-2, 1e30]
    assert data["runs"][2]["evaluations"]["loss"][-1] is None
    assert data["steps"] == data["runs"][1]["steps"] < 120
    steps = sum(run["steps"] for run in data["runs"])
    assert data["steps_per_second"] == pytest.approx(steps / data["seconds"])
    assert data["accuracy"] > 0.5 > data["worst_case_accuracy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--protocol", "paper", "--steps", "5"),
            "--protocol paper cannot be combined with --steps",
        ),
        (("--protocol", "best", "--batch-size", "5"), "combined with --batch-size"),
        (("--protocol", "best", "--learning-rate", "5"), "combined with --learning-rate"),
        (("--protocol", "paper", "--optimizer", "adam"), "combined with --optimizer"),
        (("--protocol", "worst"), "worst"),
        (("--optimizer", "sgd"), "sgd"),
        (("--steps", "0"), "--steps must be at least 1, got 0"),
        (("--batch-size", "-1"), "--batch-size must be at least 1, got -1"),
        (("--batch-size", "2000000000"), "is too large"),
        (("--learning-rate", "0"), "error: --learning-rate must be positive"),
        (("--learning-rate", "nan"), "must be positive"),
        (("--fresh",), "--fresh requires --checkpoint"),
        (("--plot", "p.gif"), "error: --plot: the name of a figure must end in .png, .pdf or .svg"),
        (("--plot", "/no/such/p.png"), "--plot: directory '/no/such' does not exist"),
        (("--out", "/no/such/m"), "--out: directory '/no/such' does not exist"),
        (("--checkpoint", "/no/such/c"), "--checkpoint: directory '/no/such' does not exist"),
        (("--out", "/tmp"), "--out: '/tmp' is a directory"),
        (("--checkpoint", ""), "--checkpoint: '' is not a file name"),
        (("--steps", "1" + 40 * "0"), "at most 1073741824"),
        (("--require", "2"), "--require must be an accuracy"),
        (("--table", "x.csv"), "--table cannot be combined with --subjects"),
    ],
)
def test_rejects_bad_input(arguments, message):
    assert message in rejected(*TRAIN, *arguments)


@pytest.mark.parametrize("more", [(), ("--fresh",)])
def test_rejects_a_checkpoint_that_is_another_file(tmp_path, more):
    file = tmp_path / "t.csv"
    file.write_text("subject,relation,answer\n")
    message = rejected(*TRAIN, "--checkpoint", file, *more)
    assert message == f"factmem: error: --checkpoint: '{file}' is not a factmem checkpoint\n"
    assert file.exists()


def test_rejects_bad_shapes_and_missing_tables():
    assert "--width must be at least 0, got -1" in rejected("train", *FACTS, *SHAPE[:-1], "-1")
    assert "are required, or --table" in rejected("train", *SHAPE)


def test_rejects_deterministic_after_jax_is_loaded():
    assert "jax is already loaded" in rejected(*TRAIN, "--deterministic")
    with pytest.raises(FactmemError, match="jax is already loaded"):
        use_one_thread()


# ---- Processes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return str(tmp_path_factory.mktemp("compiled"))


def start(compiled, *arguments):
    """Start a training that does not succeed, in a process of its own."""
    hard = ("--subjects", "12", "--relations", "12", "--answers", "8", *SHAPE)
    return subprocess.Popen(
        [*PROGRAM, "train", *hard, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": compiled},
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


LONG = ("--steps", "8000", "--batch-size", "32", "--deterministic", "--json")


def test_a_killed_training_resumes_bit_for_bit(compiled, tmp_path):
    undisturbed = finish(start(compiled, *LONG, "--out", str(tmp_path / "undisturbed")))
    checkpoint = tmp_path / "checkpoint"
    arguments = (*LONG, "--checkpoint", str(checkpoint), "--out", str(tmp_path / "killed"))

    def contents():
        return checkpoint.read_bytes() if checkpoint.exists() else b""

    delays = random.Random(0)
    for stop in (signal.SIGKILL, signal.SIGINT):
        before = contents()
        process = start(compiled, *arguments)
        while process.poll() is None and contents() == before:
            time.sleep(0.01)
        time.sleep(0.3 * delays.random())  # well before its end
        process.send_signal(stop)
        _, err = process.communicate(timeout=60)
        expected = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}[stop]
        assert process.returncode == expected, err
        assert "Traceback" not in err
    data = finish(start(compiled, *arguments))
    assert data["resumed"]
    assert data["runs"] == undisturbed["runs"]
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "undisturbed").read_bytes()
