"""`factmem reproduce`: report, figures and claims that cost nothing."""

import json

import pytest
from tests.cli import test_figure
from tests.cli.test_app import refused
from tests.cli.test_figure import SLOW, count, counted
from tests.paper.here import Here

import factmem.experiments
import factmem.paper
from factmem.cli import main
from factmem.paper import Claim, Finding, estimate
from factmem.paper.claim import between
from factmem.paper.figure_2 import figure_2


def claim(name, least, refuted=False):
    """That its three runs are more than so many: of the same runs as the figure."""

    def judge(results):
        return Finding.of([between("runs", float(len(results)), least)])

    measured = counted().measured
    return Claim(
        name, "It is <b>so</b>.", "nowhere", "By looking.", measured, judge, refuted=refuted
    )


CLAIMS = [claim("good", 1), claim("misread", 9, refuted=True)]


@pytest.fixture(autouse=True)
def cheap(monkeypatch, tmp_path):
    """Two figures and some claims, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTMEM_STORE", str(tmp_path / "runs.sqlite"))
    monkeypatch.setattr(factmem.experiments, "LocalWorkers", lambda count: Here())
    figures = (figure_2(), counted())
    monkeypatch.setattr(factmem.paper, "all_figures", lambda scale: figures)
    monkeypatch.setattr(factmem.paper, "all_claims", lambda: tuple(CLAIMS))
    count.calls = 0
    return tmp_path


def told(capsys, *arguments, code=0):
    assert main(["reproduce", *arguments, "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_the_report_and_all_files_are_there(capsys, cheap):
    data = told(capsys, "--out", "all")
    assert data["report"] == "all/report.html"
    page = (cheap / "all" / "report.html").read_text()
    assert "&lt;b&gt;so&lt;/b&gt;" in page
    assert "<b>so</b>" not in page
    assert [figure["name"] for figure in data["figures"]] == ["2", "it"]
    for figure in data["figures"]:
        assert len(figure["files"]) == 4
        for file in figure["files"]:
            assert (cheap / file).stat().st_size > 0
            assert file.startswith("all/figures/figure-")
    assert [each["id"] for each in data["claims"]] == ["good", "misread"]
    assert [each["verdict"] for each in data["claims"]] == ["holds", "fails"]
    assert data["as_expected"] is True
    assert (data["scale"], data["numbers"]) == ("quick", [])
    assert data["seconds"] > 0
    assert count.calls == 3, "figure and claims share their runs"


def test_a_claim_that_is_not_as_expected_is_exit_code_1(capsys, monkeypatch, cheap):
    wrong = (*CLAIMS, claim("bad", 9))
    monkeypatch.setattr(factmem.paper, "all_claims", lambda: wrong)
    data = told(capsys, code=1)
    assert data["as_expected"] is False
    assert [each["as_expected"] for each in data["claims"]] == [True, True, False]
    assert (cheap / "reproduction" / "report.html").exists(), "the report is written all the same"
    assert main(["reproduce"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "Not as expected: bad." in out
    assert "2 figures (1 of 1 fitted slopes as the paper says), 3 claims (2 as expected)" in out
    assert "The report: reproduction/report.html" in out


def test_doing_it_again_measures_nothing(capsys):
    told(capsys)
    told(capsys)
    assert count.calls == 3
    told(capsys, "--fresh")
    assert count.calls == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "0"), "--workers is at least 1"),
        (("--cluster", "here"), "is like tcp://host:8786, not 'here'"),
        (("--cluster", "tcp://h:1", "--workers", "2"), "give one of them"),
        (("--store", ""), "--store is the name of a file"),
        (("--out", ""), "--out is the name of a folder"),
        (("--out", "file"), "--out is a folder, and 'file' is none"),
        (("--scale", "huge"), "huge"),
    ],
)
def test_what_is_refused(capsys, cheap, arguments, message):
    (cheap / "file").write_text("mine")
    assert message in refused(capsys, ["reproduce", *arguments])
    assert [path.name for path in cheap.iterdir()] == ["file"]


def test_paper_scale_that_takes_hours_wants_a_yes(capsys, monkeypatch, cheap):
    monkeypatch.setattr(estimate, "_OTHER", 3600.0)
    test_figure.speed(monkeypatch, SLOW)
    message = refused(capsys, ["reproduce", "--scale", "paper"])
    assert "all figures at paper scale takes about 4.0 hours" in message
    assert count.calls == 0
    assert not (cheap / "reproduction").exists()
    assert told(capsys, "--scale", "paper", "--yes")["scale"] == "paper"
    assert count.calls == 3
