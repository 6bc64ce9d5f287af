"""`factmem claims`: its JSON, its text, its exit codes, its errors."""

import pytest
from tests.cli.commands import rejected, run_json, run_text
from tests.experiments.inline_workers import InlineWorkers

import factmem.experiments
import factmem.paper
from factmem.experiments.measurement import uncached_tasks
from factmem.paper import Claim, Finding
from factmem.paper.claim import check_between, check_close


def measure_one(*, seed):
    return {"one": 1.0}


def make_claim(name, checks, refuted=False):
    return Claim(
        name,
        "A <b>statement</b>.",
        "Theorem 0",
        "By measuring.",
        uncached_tasks(measure_one, [3, 4]),
        lambda results: Finding.from_checks(checks, "A note."),
        refuted=refuted,
    )


CLAIMS = {
    "good": make_claim("good", [check_between("one", 1.0, 0)]),
    "near": make_claim("near", [check_close("one", 1.02, 1, 0.1)]),
    "bad": make_claim("bad", [check_between("one", 1.0, 2)]),
    "refuted": make_claim("refuted", [check_between("one", 1.0, 2)], refuted=True),
}


@pytest.fixture(autouse=True)
def cheap_claims(monkeypatch, tmp_path):
    """Replace the claims by ones that cost nothing, checked in this process."""
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "runs.sqlite"))
    monkeypatch.setattr(factmem.paper, "all_claims", lambda seed: tuple(CLAIMS.values()))
    monkeypatch.setattr(factmem.paper, "get_claim", lambda name, seed: CLAIMS[name])
    monkeypatch.setattr(factmem.experiments, "LocalWorkers", lambda count: InlineWorkers())


def test_json_has_the_evidence_of_a_claim():
    data = run_json("claims", "--only", "near")
    (claim,) = data["claims"]
    assert claim["id"] == "near"
    assert claim["claim"] == "A <b>statement</b>."
    assert (claim["reference"], claim["method"]) == ("Theorem 0", "By measuring.")
    assert claim["verdict"] == "holds_within"
    assert claim["max_deviation"] == pytest.approx(0.02)
    (check,) = claim["evidence"]
    assert check == {
        "quantity": "one",
        "measured": 1.02,
        "expected": "1 ± 10%",
        "holds": True,
        "deviation": pytest.approx(0.02),
    }
    assert claim["seeds"] == [3, 4]
    assert (claim["scale"], claim["runs"], claim["runs_read"]) == ("quick", 2, 0)
    assert claim["note"] == "A note."


def test_a_failing_claim_is_exit_code_1():
    data = run_json("claims", code=1)
    assert data["verdicts"] == {"fails": 2, "holds": 1, "holds_within": 1}
    assert not data["as_expected"]
    assert [claim["as_expected"] for claim in data["claims"]] == [True, True, False, True]


def test_a_refuted_claim_that_fails_is_exit_code_0():
    data = run_json("claims", "--only", "good", "--only", "refuted", "--only", "good")
    assert [claim["id"] for claim in data["claims"]] == ["good", "refuted"]
    assert data["as_expected"]


def test_text_shows_verdicts():
    text = run_text("claims", code=1)
    assert "<b>statement</b>" in text
    assert "fails: 2, holds: 1, holds within tolerance: 1;" in text
    assert "holds within 2%" in " ".join(text.split())
    assert "Not as expected: bad." in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "-1"), "--seed must be from 0"),
        (("--seed", "4294967294"), "--seed must be from 0"),
        (("--workers", "0"), "--workers must be at least 1"),
        (("--cluster", "here"), "tcp://host:8786"),
        (("--scale", "huge"), "huge"),
        (("--store", ""), "--store: '' is not a file name"),
    ],
)
def test_rejects_bad_input(arguments, message):
    assert message in rejected("claims", *arguments)


def test_rejects_an_unknown_claim_and_lists_all(monkeypatch):
    monkeypatch.undo()
    message = rejected("claims", "--only", "x\n")
    assert "'x\\n'" in message
    assert factmem.paper.claim_ids()[0] in message
