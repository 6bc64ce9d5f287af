"""`factmem reproduce`, with figures and claims that cost nothing."""

import pytest
from tests.cli.commands import rejected, run_json, run_text
from tests.cli.test_figure import SLOW, cheap_figure, count_calls, set_speed
from tests.experiments.inline_workers import InlineWorkers

import factmem.experiments
import factmem.paper
from factmem.experiments import estimate
from factmem.paper import Claim, Finding, get_figure
from factmem.paper.claim import check_between


def make_claim(name, minimum, refuted=False):
    """Return the claim that the cheap figure has at least so many runs."""

    def judge(results):
        return Finding.from_checks([check_between("runs", float(len(results)), minimum)])

    return Claim(
        name,
        "A <b>statement</b>.",
        "nowhere",
        "By counting.",
        cheap_figure().measurement,
        judge,
        refuted=refuted,
    )


CLAIMS = [make_claim("good", 1), make_claim("misread", 9, refuted=True)]


@pytest.fixture(autouse=True)
def directory(monkeypatch, tmp_path):
    """Two figures and two claims, in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "runs.sqlite"))
    monkeypatch.setattr(factmem.experiments, "LocalWorkers", lambda count: InlineWorkers(1))
    figures = (get_figure("2"), cheap_figure())
    monkeypatch.setattr(factmem.paper, "all_figures", lambda scale: figures)
    monkeypatch.setattr(factmem.paper, "all_claims", lambda: tuple(CLAIMS))
    count_calls.calls = 0
    return tmp_path


def test_writes_the_report_and_all_files(directory):
    data = run_json("reproduce", "--out", "all")
    assert data["report"] == "all/report.html"
    page = (directory / "all" / "report.html").read_text()
    assert "&lt;b&gt;statement&lt;/b&gt;" in page
    assert "<b>statement</b>" not in page
    assert [figure["name"] for figure in data["figures"]] == ["2", "cheap"]
    for figure in data["figures"]:
        assert len(figure["files"]) == 4
        for file in figure["files"]:
            assert (directory / file).stat().st_size > 0
            assert file.startswith("all/figures/figure-")
    assert [claim["id"] for claim in data["claims"]] == ["good", "misread"]
    assert [claim["verdict"] for claim in data["claims"]] == ["holds", "fails"]
    assert data["as_expected"] is True
    assert (data["scale"], data["numbers"]) == ("quick", [])
    assert data["seconds"] > 0
    assert count_calls.calls == 3, "the figure and the claims share their runs"


def test_an_unexpected_claim_is_exit_code_1(monkeypatch, directory):
    claims = (*CLAIMS, make_claim("bad", 9))
    monkeypatch.setattr(factmem.paper, "all_claims", lambda: claims)
    data = run_json("reproduce", code=1)
    assert data["as_expected"] is False
    assert [claim["as_expected"] for claim in data["claims"]] == [True, True, False]
    assert (directory / "reproduction" / "report.html").exists(), "the report is still written"
    text = run_text("reproduce", code=1)
    assert "Not as expected: bad." in text
    assert "2 figures (1 of 1 fitted slopes agree with the paper), 3 claims (2 as exp" in text
    assert "Report: reproduction/report.html" in text


def test_repeating_it_executes_nothing():
    run_json("reproduce")
    run_json("reproduce")
    assert count_calls.calls == 3
    run_json("reproduce", "--fresh")
    assert count_calls.calls == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "0"), "--workers must be at least 1"),
        (("--cluster", "here"), "tcp://host:8786"),
        (("--cluster", "tcp://h:1", "--workers", "2"), "--workers cannot be combined"),
        (("--store", ""), "--store: '' is not a file name"),
        (("--out", ""), "--out: '' is not a directory name"),
        (("--out", "file"), "--out: 'file' is not a directory"),
        (("--out", "no/such"), "/no' does not exist"),
        (("--scale", "huge"), "huge"),
    ],
)
def test_rejects_bad_input_before_any_work(directory, arguments, message):
    (directory / "file").write_text("mine")
    assert message in rejected("reproduce", *arguments)
    assert [path.name for path in directory.iterdir()] == ["file"]


def test_hours_at_paper_scale_need_yes(monkeypatch, directory):
    monkeypatch.setattr(estimate, "_DEFAULT_SECONDS", 3600.0)
    set_speed(monkeypatch, SLOW)
    message = rejected("reproduce", "--scale", "paper")
    assert "all figures at paper scale takes about 4.0 hours" in message
    assert count_calls.calls == 0
    assert not (directory / "reproduction").exists()
    assert run_json("reproduce", "--scale", "paper", "--yes")["scale"] == "paper"
    assert count_calls.calls == 3
