"""`factmem train`: its keys, its files, its refusals, and that killing it loses nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from factmem import training
from factmem._core.errors import FactmemError
from factmem._core.threads import one_thread
from factmem.cli import main
from factmem.cli.train import Training, _protocol
from factmem.transformer import load_transformer

FACTS = ("--subjects", "6", "--relations", "5", "--answers", "3", "--length", "8")
SIZE = ("--dim", "12", "--heads", "3", "--head-dim", "4", "--width", "10")
SHORT = ("--steps", "60", "--batch", "64")
GIVEN = ("train", *FACTS, *SIZE)


def refused(capsys, *arguments) -> str:
    assert main([*GIVEN, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def answer(capsys, *arguments, code=0):
    assert main([*GIVEN, *arguments, "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_the_keys_of_the_contract(capsys):
    found = answer(capsys, *SHORT)
    for key in (
        *("parameters", "facts", "accuracy", "best_accuracy", "learning_rate", "steps"),
        *("seconds", "compile_seconds", "steps_per_second"),
    ):
        assert isinstance(found[key], int | float), key
    assert found["parameters"] == 4 * 3 * 12 * 4 + 2 * 10 * 12
    assert found["facts"] == 30
    assert (found["learning_rate"], found["optimizer"]) == (0.01, "adam")
    (run,) = found["runs"]
    assert run["checks"]["steps"][-1] == run["steps"] == found["steps"] == 60
    assert max(run["checks"]["accuracy"]) == found["best_accuracy"]
    assert 0 <= found["accuracy_in_worst_noise"] <= found["accuracy"] <= 1
    assert found["success"] == (found["best_accuracy"] > 0.99)


def test_muon_is_another_optimizer(capsys):
    found = answer(capsys, *SHORT, "--optimizer", "muon")
    assert (found["optimizer"], found["learning_rate"]) == ("muon", 0.05)


def test_files(capsys, tmp_path):
    model, plot, kept = (str(tmp_path / name) for name in ("m.safetensors", "p.png", "c"))
    flags = (*SHORT, "--out", model, "--plot", plot, "--checkpoint", kept)
    first = answer(capsys, *flags)
    assert load_transformer(model).shape.parameters == first["parameters"]
    assert not first["resumed"]
    assert {path.name for path in tmp_path.iterdir()} == {"m.safetensors", "p.png", "c"}
    again = answer(capsys, *flags)
    assert again["resumed"]
    assert again["steps_per_second"] is None
    assert again["runs"] == first["runs"]
    assert "holds another training" in refused(capsys, *flags, "--seed", "1")
    fresh = answer(capsys, *flags, "--fresh", "--seed", "1")
    assert fresh["runs"] != first["runs"]
    assert not fresh["resumed"]
    assert "not a training" in refused(capsys, *SHORT, "--checkpoint", model, "--fresh")
    assert load_transformer(model)


def test_what_is_required(capsys):
    assert main([*GIVEN, *SHORT, "--require", "1"]) == 1
    out, err = capsys.readouterr()
    assert "below the 1.0 that was required" in out
    assert "all facts, fresh noise" in out
    assert "Traceback" not in err


def test_flags_make_the_protocol_that_they_say():
    from factmem.training import BEST, PAPER

    assert _protocol(Training("paper")) == PAPER
    assert _protocol(Training("best")) == BEST
    assert _protocol(Training()) == replace(PAPER, learning_rates=(1e-2,))
    expected = replace(BEST, learning_rates=(0.2,), steps=50, batch=9, checks=50)
    given = Training(steps=50, batch=9, learning_rate=0.2, optimizer="muon")
    assert _protocol(given) == expected
    assert _protocol(Training(steps=1000, optimizer="adam")).checks == 128


def test_the_best_of_three_rates_counts(capsys, monkeypatch):
    rates = {"learning_rates": (1e-6, 2e-2, 1e30), "steps": 120, "checks": 12, "batch": 64}
    paper = replace(training.PAPER, **rates, prompts=256, criterion=0.8)
    monkeypatch.setattr(training, "PAPER", paper)
    found = answer(capsys, "--protocol", "paper", "--require", "0.5")
    assert found["learning_rate"] == 2e-2
    assert found["success"]
    assert found["outcome"] == "The criterion was reached."
    assert [run["learning_rate"] for run in found["runs"]] == [1e-6, 2e-2, 1e30]
    assert found["runs"][2]["checks"]["loss"][-1] is None
    assert found["steps"] == found["runs"][1]["steps"] < 120
    steps = sum(run["steps"] for run in found["runs"])
    assert found["steps_per_second"] == pytest.approx(steps / found["seconds"])
    assert found["accuracy"] > 0.5 > found["accuracy_in_worst_noise"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--protocol", "paper", "--steps", "5"), "--protocol paper has its own --steps"),
        (("--protocol", "best", "--batch", "5"), "has its own --batch"),
        (("--protocol", "best", "--learning-rate", "5"), "has its own --learning-rate"),
        (("--protocol", "paper", "--optimizer", "adam"), "has its own --optimizer"),
        (("--protocol", "worst"), "worst"),
        (("--optimizer", "sgd"), "sgd"),
        (("--steps", "0"), "--steps is at least 1"),
        (("--batch", "-1"), "--batch is at least 1"),
        (("--batch", "2000000000"), "more than an array here may have"),
        (("--learning-rate", "0"), "a learning rate is positive"),
        (("--learning-rate", "nan"), "a learning rate is positive"),
        (("--fresh",), "give one"),
        (("--plot", "p.gif"), ".png, .pdf or .svg"),
        (("--plot", "/no/such/p.png"), "there is no folder for"),
        (("--out", "/no/such/m"), "there is no folder for"),
        (("--checkpoint", "/no/such/c"), "there is no folder for"),
        (("--out", "/tmp"), "is not the name of a file"),
        (("--checkpoint", ""), "is not the name of a file"),
        (("--steps", "1" + 40 * "0"), "at most 1073741824 steps"),
        (("--require", "2"), "--require is an accuracy"),
        (("--table", "x.csv"), "give no sizes"),
    ],
)
def test_bad_input(capsys, arguments, message):
    assert message in refused(capsys, *arguments)


def test_sizes_that_make_no_transformer(capsys):
    assert main(["train", *FACTS, *SIZE[:-1], "-1"]) == 2
    assert "--width is at least 0, not -1" in capsys.readouterr().err
    assert main(["train", *SIZE]) == 2
    assert "give --subjects" in capsys.readouterr().err


def test_determinism_cannot_come_late(capsys):
    assert "before jax is loaded" in refused(capsys, "--deterministic")
    with pytest.raises(FactmemError, match="before jax is loaded"):
        one_thread()


# ---- processes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return str(tmp_path_factory.mktemp("compiled"))


def process(compiled, *arguments):
    """A training that does not succeed, in a process of its own."""
    hard = ("--subjects", "12", "--relations", "12", "--answers", "8", *SIZE)
    return subprocess.Popen(
        [sys.executable, "-c", "from factmem.cli import run; run()", "train", *hard, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": compiled},
    )


def results(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


LONG = ("--steps", "12000", "--batch", "32", "--deterministic", "--json")


def test_killing_it_at_any_moment_changes_no_bit_of_the_end(compiled, tmp_path):
    undisturbed = results(process(compiled, *LONG, "--out", str(tmp_path / "undisturbed")))
    kept = tmp_path / "checkpoint"
    flags = (*LONG, "--checkpoint", str(kept), "--out", str(tmp_path / "killed"))
    moments = random.Random(0)
    for how in (signal.SIGKILL, signal.SIGINT):
        running, before = process(compiled, *flags), kept.read_bytes() if kept.exists() else b""
        while running.poll() is None and (kept.read_bytes() if kept.exists() else b"") == before:
            time.sleep(0.01)
        time.sleep(0.3 * moments.random())  # well before its end
        running.send_signal(how)
        _, err = running.communicate(timeout=60)
        assert running.returncode == {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}[how], err
        assert "Traceback" not in err
    found = results(process(compiled, *flags))
    assert found["resumed"]
    assert found["runs"] == undisturbed["runs"]
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "undisturbed").read_bytes()
