"""`factmem memory`: its JSON, its text, its errors."""

import pytest
from tests.cli.commands import rejected, run_json, run_text

from factmem.experiments.memory_methods import MEMORY_METHODS

KEYS = {
    *("method", "dim", "facts", "outputs", "parameters", "accuracy", "min_margin"),
    *("min_relative_margin", "bits_per_parameter", "status", "seconds"),
}
HEBBIAN = ("hebbian", "--dim", "8", "--facts", "4")


@pytest.mark.parametrize("method", MEMORY_METHODS)
def test_every_method_has_the_same_keys(method):
    required = [name for name, needed in MEMORY_METHODS[method].options.items() if needed]
    sizes = [f"--{name}=12" for name in required]
    data = run_json("memory", method, "--dim", 16, "--facts", 12, *sizes)
    assert set(data) >= KEYS
    assert (data["method"], data["dim"], data["facts"], data["outputs"]) == (method, 16, 12, 12)
    assert data["bits_per_weight"] is None
    assert data["seconds"] >= 0
    assert data["compile_seconds"] >= 0
    for name in required:
        assert data[name] == 12


def test_optimal_reports_its_proof():
    stored = run_json("memory", "optimal", "--dim", 8, "--facts", 8)
    assert (stored["verdict"], stored["feasible"]) == ("feasible", True)
    assert stored["min_margin"] > 0
    assert stored["certificate_residual"] is stored["certificate_threshold"] is None
    crowded = run_json("memory", "optimal", "--dim", 8, "--facts", 60)
    assert (crowded["verdict"], crowded["feasible"]) == ("infeasible", False)
    assert crowded["certificate_residual"] < crowded["certificate_threshold"]
    assert (stored["status"], crowded["status"]) == ("feasible", "infeasible")
    text = run_text("memory", "optimal", "--dim", 8, "--facts", 60, "--require", 1, code=1)
    assert "│ status │ infeasible │" in text
    assert "no linear memory recalls all associations; the accuracy is that of the " in text
    assert "storing all associations │ infeasible" in text
    assert "bits per parameter" in text
    assert "The accuracy is below the required 1.0." in text


def test_a_seed_determines_the_result():
    first, again, other = (
        run_json("memory", "hebbian", "--dim", 8, "--facts", 8, "--seed", seed)["min_margin"]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_weights_can_be_rounded_or_perturbed():
    size = ("memory", "hebbian", "--dim", 32, "--facts", 12)
    exact = run_json(*size)["min_margin"]
    rounded = run_json(*size, "--bits", 3)
    noisy = run_json(*size, "--weight-noise", 0.1)
    assert (rounded["bits_per_weight"], noisy["weight_noise"]) == (3, 0.1)
    assert len({exact, rounded["min_margin"], noisy["min_margin"]}) == 3


def test_precision_is_that_of_the_memory_before_rounding():
    size = ("memory", "hebbian", "--dim", 32, "--facts", 8, "--precision")
    data = run_json(*size)
    assert 1 <= data["bits_needed"] <= 16
    assert data["noise_tolerated"] > 0
    assert run_json(*size, "--bits", 1)["noise_tolerated"] == data["noise_tolerated"]


def test_fewer_outputs_than_facts():
    data = run_json(
        "memory", "tangent", "--dim", 16, "--facts", 10, "--outputs", 2, "--width", 64
    )  # fmt: skip
    assert data["outputs"] == 2


def test_a_requirement_that_is_not_met_is_exit_code_1():
    size = ("memory", "hebbian", "--dim", 4, "--facts", 60)
    assert run_json(*size, "--require", 1.0, code=1)["accuracy"] < 1
    assert run_json(*size, "--require", 0.0)["accuracy"] < 1
    small = ("memory", "hebbian", "--dim", 16, "--facts", 4)
    assert run_json(*small, "--require", 1.0)["accuracy"] == 1


def test_a_single_output_has_no_margin():
    data = run_json("memory", "hebbian", "--dim", 4, "--facts", 3, "--outputs", 1)
    assert data["min_margin"] is None
    assert (data["accuracy"], data["bits_per_parameter"]) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*HEBBIAN[:3], "--facts", "0"), "--facts must be at least 1, got 0"),
        (("hebbian", "--dim", "0", *HEBBIAN[3:]), "--dim must be at least 1, got 0"),
        ((*HEBBIAN, "--outputs", "0"), "--outputs must be at least 1, got 0"),
        ((*HEBBIAN, "--seed", "-1"), "--seed must be from 0"),
        ((*HEBBIAN, "--require", "2"), "--require must be an accuracy"),
        ((*HEBBIAN, "--width", "4"), "error: --width cannot be used with hebbian\n"),
        ((*HEBBIAN, "--bits", "0"), "--bits must be from 1 to 24, got 0"),
        ((*HEBBIAN, "--weight-noise", "-1"), "--weight-noise must be from 0 to 1e6"),
        ((*HEBBIAN, "--weight-noise", "nan"), "--weight-noise must be from 0 to 1e6"),
        ((*HEBBIAN, "--weight-noise", "1e300"), "--weight-noise must be from 0 to 1e6"),
        ((*HEBBIAN[:3], "--facts", "1" + "0" * 20), "is too large"),
        (("hebbian", "--dim", "100000", "--facts", "4"), "is too large"),
        (("hermite", *HEBBIAN[1:], "--width", "1" + "0" * 14), "is too large"),
        (("hermite", *HEBBIAN[1:], "--width", "4", "--degree", "100000000"), "100"),
        (
            (*HEBBIAN, "--outputs", "2", "--target", "permutation"),
            "cannot have distinct answers among 2",
        ),
        ((*HEBBIAN, "--target", "x\ny"), "--target"),
        (("low-rank", *HEBBIAN[1:]), "error: --rank is required for low-rank\n"),
        (
            ("low-rank", *HEBBIAN[1:], "--rank", "9"),
            "error: --rank must be from 1 to dim = 8, got 9\n",
        ),
        (
            ("tangent", *HEBBIAN[1:], "--width", "4", "--degree", "3"),
            "error: --degree must be even",
        ),
        (
            ("fitted-relu", *HEBBIAN[1:], "--width", "0"),
            "error: --width must be at least 1, got 0\n",
        ),
        (("no\x1bmethod", *HEBBIAN[1:]), "choose from hebbian"),
        (HEBBIAN[:3], "--facts is required"),
    ],
)
def test_rejects_bad_input(arguments, message):
    assert message in rejected("memory", *arguments)
