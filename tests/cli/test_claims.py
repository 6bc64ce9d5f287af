"""`factmem claims`: what it says, what it refuses, and how it exits."""

import json

import pytest
from tests.cli.test_app import refused
from tests.paper.here import Here

import factmem.experiments
import factmem.paper
from factmem.cli import main
from factmem.experiments.measurement import direct
from factmem.paper import Claim, Finding
from factmem.paper.claim import between, close


def one(*, seed):
    return {"one": 1.0}


def made(name, checks, refuted=False):
    return Claim(
        name,
        "It is <b>so</b>.",
        "Theorem 0",
        "By looking.",
        unstored_tasks(one, [3, 4]),
        lambda results: Finding.of(checks, "Beside it."),
        refuted=refuted,
    )


CLAIMS = {
    "good": made("good", [between("one", 1.0, 0)]),
    "near": made("near", [close("one", 1.02, 1, 0.1)]),
    "bad": made("bad", [between("one", 1.0, 2)]),
    "refuted": made("refuted", [between("one", 1.0, 2)], refuted=True),
}


@pytest.fixture(autouse=True)
def small_list(monkeypatch, tmp_path):
    """A list of claims that cost nothing, in this process."""
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "runs.sqlite"))
    monkeypatch.setattr(factmem.paper, "all_claims", lambda seed: tuple(CLAIMS.values()))
    monkeypatch.setattr(factmem.paper, "claim_named", lambda name, seed: CLAIMS[name])
    monkeypatch.setattr(factmem.experiments, "LocalWorkers", lambda count: Here())


def told(capsys, *arguments, code=0):
    assert main(["claims", *arguments, "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_a_claim_with_its_evidence(capsys):
    data = told(capsys, "--only", "near")
    (claim,) = data["claims"]
    assert claim["id"] == "near"
    assert claim["claim"] == "It is <b>so</b>."
    assert (claim["place"], claim["method"]) == ("Theorem 0", "By looking.")
    assert claim["verdict"] == "holds within"
    assert claim["within"] == pytest.approx(0.02)
    (check,) = claim["evidence"]
    assert check == {
        "what": "one",
        "measured": 1.02,
        "expected": "1 up to 10 %",
        "holds": True,
        "deviation": pytest.approx(0.02),
    }
    assert claim["seeds"] == [3, 4]
    assert (claim["scale"], claim["runs"], claim["runs_read"]) == ("quick", 2, 0)
    assert claim["note"] == "Beside it."


def test_a_claim_that_fails_is_exit_code_1(capsys):
    data = told(capsys, code=1)
    assert data["verdicts"] == {"fails": 2, "holds": 1, "holds within": 1}
    assert not data["as_expected"]
    assert [claim["as_expected"] for claim in data["claims"]] == [True, True, False, True]


def test_what_should_fail_and_does_is_exit_code_0(capsys):
    data = told(capsys, "--only", "good", "--only", "refuted", "--only", "good")
    assert [claim["id"] for claim in data["claims"]] == ["good", "refuted"]
    assert data["as_expected"]


def test_what_a_person_sees(capsys):
    assert main(["claims"]) == 1
    out = capsys.readouterr().out
    assert "<b>so</b>" in out
    assert "holds within 2 %" in " ".join(out.split())
    assert "Not as expected: bad." in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "-1"), "--seed is from 0"),
        (("--seed", "4294967294"), "--seed is from 0"),
        (("--workers", "0"), "--workers is at least 1"),
        (("--scale", "huge"), "huge"),
        (("--store", ""), "--store is the name of a file"),
    ],
)
def test_what_is_refused(capsys, arguments, message):
    assert message in refused(capsys, ["claims", *arguments])


def test_a_claim_that_there_is_not(capsys, monkeypatch):
    monkeypatch.undo()
    assert "no claim 'x\\n'; there are" in refused(capsys, ["claims", "--only", "x\n"])
