"""`factmem memory`: JSON keys, what it refuses, what a person sees."""

import json

import pytest

from factmem.cli import main
from factmem.cli.progress import progress
from factmem.experiments.memory_methods import METHODS

from .test_app import refused

KEYS = {
    "method",
    "dim",
    "facts",
    "outputs",
    "parameters",
    "accuracy",
    "min_margin",
    "relative_margin",
    "bits_per_parameter",
    "seconds",
}


def asked(capsys, *arguments, code=0):
    assert main(["memory", *map(str, arguments), "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers_with_the_keys_of_the_contract(capsys, method):
    sizes = [f"--{name}=12" for name in METHODS[method].needs]
    found = asked(capsys, method, "--dim", 16, "--facts", 12, *sizes)
    assert set(found) >= KEYS
    assert (found["method"], found["dim"], found["facts"], found["outputs"]) == (method, 16, 12, 12)
    assert found["bits"] is None
    assert found["seconds"] >= 0
    assert found["compile_seconds"] >= 0
    for name in METHODS[method].needs:
        assert found[name] == 12


def test_maximal_says_what_is_proved(capsys):
    stored = asked(capsys, "maximal", "--dim", 8, "--facts", 8)
    assert (stored["verdict"], stored["feasible"]) == ("feasible", True)
    assert stored["min_margin"] > 0
    assert stored["certificate_residual"] is stored["certificate_threshold"] is None
    crowded = asked(capsys, "maximal", "--dim", 8, "--facts", 60)
    assert (crowded["verdict"], crowded["feasible"]) == ("infeasible", False)
    assert crowded["certificate_residual"] < crowded["certificate_threshold"]


def test_seeds_differ_and_repeat(capsys):
    first, again, other = (
        asked(capsys, "hebbian", "--dim", 8, "--facts", 8, "--seed", seed)["min_margin"]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_weights_may_be_rounded_and_shaken(capsys):
    size = ["hebbian", "--dim", 32, "--facts", 12]
    exact = asked(capsys, *size)["min_margin"]
    rough = asked(capsys, *size, "--bits", 3)
    noisy = asked(capsys, *size, "--weight-noise", 0.1)
    assert (rough["bits"], noisy["weight_noise"]) == (3, 0.1)
    assert len({exact, rough["min_margin"], noisy["min_margin"]}) == 3


def test_precision_on_request(capsys):
    found = asked(capsys, "hebbian", "--dim", 32, "--facts", 8, "--precision")
    assert 1 <= found["bits_needed"] <= 16
    assert found["noise_tolerated"] > 0
    # Of the memory as it was built, not as it was rounded for the test.
    rough = asked(capsys, "hebbian", "--dim", 32, "--facts", 8, "--precision", "--bits", 1)
    assert rough["noise_tolerated"] == found["noise_tolerated"]


def test_fewer_outputs_are_shared(capsys):
    found = asked(capsys, "tangent", "--dim", 16, "--facts", 10, "--outputs", 2, "--width", 64)
    assert found["outputs"] == 2


def test_a_requirement_that_is_not_met_is_exit_code_1(capsys):
    size = ["hebbian", "--dim", 4, "--facts", 60]
    assert asked(capsys, *size, "--require", 1.0, code=1)["accuracy"] < 1
    assert asked(capsys, *size, "--require", 0.0)["accuracy"] < 1
    assert asked(capsys, "hebbian", "--dim", 16, "--facts", 4, "--require", 1.0)["accuracy"] == 1


def test_a_single_output_has_no_margin(capsys):
    found = asked(capsys, "hebbian", "--dim", 4, "--facts", 3, "--outputs", 1)
    assert found["min_margin"] is None
    assert (found["accuracy"], found["bits_per_parameter"]) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hebbian", "--dim", "8", "--facts", "0"], "--facts is at least 1"),
        (["hebbian", "--dim", "0", "--facts", "4"], "--dim is at least 1"),
        (["hebbian", "--dim", "8", "--facts", "4", "--outputs", "0"], "--outputs is at least 1"),
        (["hebbian", "--dim", "8", "--facts", "4", "--seed", "-1"], "--seed"),
        (["hebbian", "--dim", "8", "--facts", "4", "--require", "2"], "--require"),
        (["hebbian", "--dim", "8", "--facts", "4", "--width", "4"], "hebbian has no width"),
        (["hebbian", "--dim", "8", "--facts", "4", "--bits", "0"], "--bits is from 1 to 24"),
        (["hebbian", "--dim", "8", "--facts", "4", "--weight-noise", "-1"], "from 0 to 1e6"),
        (["hebbian", "--dim", "8", "--facts", "4", "--weight-noise", "nan"], "from 0 to 1e6"),
        (["hebbian", "--dim", "8", "--facts", "4", "--weight-noise", "1e300"], "from 0 to 1e6"),
        (["hebbian", "--dim", "8", "--facts", "1" + "0" * 20], "more than an array here may have"),
        (["hebbian", "--dim", "100000", "--facts", "4"], "more than an array here may have"),
        (
            ["hermite", "--dim", "8", "--facts", "4", "--width", "1" + "0" * 14],
            "more than an array",
        ),
        (["hermite", "--dim", "8", "--facts", "4", "--width", "4", "--degree", "100000000"], "100"),
        (
            ["hebbian", "--dim", "8", "--facts", "4", "--outputs", "2", "--target", "permutation"],
            "cannot have distinct answers among 2",
        ),
        (["hebbian", "--dim", "8", "--facts", "4", "--target", "x\ny"], "--target"),
        (["low-rank", "--dim", "8", "--facts", "4"], "low-rank needs a rank"),
        (["low-rank", "--dim", "8", "--facts", "4", "--rank", "9"], "from 1 to 8"),
        (["tangent", "--dim", "8", "--facts", "4", "--width", "4", "--degree", "3"], "even degree"),
        (["fitted-relu", "--dim", "8", "--facts", "4", "--width", "0"], "at least one neuron"),
        (["no\x1bmethod", "--dim", "8", "--facts", "4"], "there are hebbian"),
        (["hebbian", "--dim", "8"], "--facts"),
    ],
)
def test_what_cannot_work_is_refused(capsys, arguments, message):
    assert message in refused(capsys, ["memory", *arguments])


def test_a_person_sees_a_table(capsys):
    assert main(["memory", "maximal", "--dim", "8", "--facts", "60", "--require", "1"]) == 1
    out, _ = capsys.readouterr()
    assert "infeasible" in out
    assert "bits per parameter" in out
    assert "below the 1.0 that was required" in out


class TestProgress:
    def test_nothing_with_json(self, capsys):
        from factmem.cli.answer import Output

        with progress(Output(json=True), "fit") as report:
            report(1, loss=0.5)
        assert capsys.readouterr() == ("", "")

    def test_plain_lines_off_a_terminal_but_not_too_many(self, capsys, monkeypatch):
        from factmem.cli import progress as module
        from factmem.cli.answer import Output

        moments = iter([0.0, 1.0, 6.0, 6.0, 7.0])
        monkeypatch.setattr(module.time, "monotonic", lambda: next(moments))
        with progress(Output(), "fit") as report:
            report(50, loss=0.5)
            report(1200, loss=0.25)
            report(1300, loss=0.2)
        out, err = capsys.readouterr()
        assert out == ""
        assert err == "fit: 1,200 steps, loss 0.25\n"

    @pytest.mark.parametrize("total", [None, 10])
    def test_a_bar_on_a_terminal(self, capsys, monkeypatch, total):
        import sys

        from factmem.cli.answer import Output

        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("FORCE_COLOR", "1")
        with progress(Output(), "fit", total) as report:
            report(5, loss=0.5)
        out, err = capsys.readouterr()
        assert out == ""
        assert "fit" in err

    def test_what_is_left_may_change_and_things_are_counted_by_their_name(
        self, capsys, monkeypatch
    ):
        from factmem.cli import progress as module
        from factmem.cli.answer import Output

        moments = iter([0.0, 6.0, 12.0])
        monkeypatch.setattr(module.time, "monotonic", lambda: next(moments))
        with progress(Output(), "capacity", 1, "probe") as report:
            report(1, running=2, left=3, bracket="26 ≤ S")
            report(2, running=1, left=1, bracket="26 ≤ S < 27")
        assert capsys.readouterr().err == (
            "capacity: 1 probe, running 2, left 3, bracket 26 ≤ S\n"
            "capacity: 2 probes, running 1, left 1, bracket 26 ≤ S < 27, about 6 s left\n"
        )
