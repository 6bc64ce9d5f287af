"""The page as HTML; `test_browser.py` opens it in a browser."""

import csv
import io
import itertools
import json
import math
import urllib.parse
from html.parser import HTMLParser

import pytest
from tests.plotting import samples as plots
from tests.report import samples

from factmem.paper.claim import Check, Verdict
from factmem.plotting import draw_plotly
from factmem.report import KeyNumber, Section, report_html, write_report


class Page(HTMLParser):
    """Parsed HTML: tags with their attributes, and texts with the innermost tag around them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag, **attributes):
        matches = (attrs for name, attrs in self.tags if name == tag)
        return [attrs for attrs in matches if attributes.items() <= attrs.items()]

    def text(self, tag):
        return [data for name, data in self.texts if name == tag]

    @property
    def visible_text(self):
        return "".join(data for name, data in self.texts if name not in ("script", "style"))


@pytest.fixture(scope="module")
def text():
    return report_html(samples.report())


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def page_of(*figures, **fields):
    return Page(report_html(samples.report_of(*figures, **fields)))


def test_the_page_is_small_enough_to_send(text):
    assert 4e6 < len(text.encode()) < 8e6


def test_names_are_escaped(page):
    assert len(page.all("script")) == 3
    assert not page.all("img") + page.all("b")
    assert all(link["href"].startswith(("#", "data:text/csv")) for link in page.all("a"))
    assert {name for _, attrs in page.tags for name in attrs if name.startswith("on")} == set()
    for name in (plots.SCRIPT, plots.CLOSING, plots.IMAGE, plots.BOLD, plots.ENTITY):
        assert name in page.visible_text


def test_only_our_own_scripts_run_and_nothing_is_requested(page):
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; script-src 'sha256-")
    assert policy["content"].count("sha256-") == 2
    assert not [attrs for _, attrs in page.tags if "src" in attrs]
    assert not page.all("link")


def test_data_cannot_end_the_script(text):
    data = text.split('id="figures">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028\u2029")
    figures = json.loads(data)
    sections = samples.report().sections
    assert [figure["anchor"] for figure in figures] == [section.anchor for section in sections]
    for figure, section in zip(figures, sections, strict=True):
        panels = [{key: panel[key] for key in ("data", "layout")} for panel in figure["panels"]]
        assert panels == draw_plotly(section.plot)


def test_traces_know_their_lines(text):
    data = text.split('id="figures">')[1].split("</script>")[0]
    first, second = json.loads(data)
    assert [panel["lines"] for panel in first["panels"]] == [[0, 1, 2, 3], [0, 4]]
    assert first["panels"][0]["colors"] == ["line-0", "line-0", "line-1", "reference"]
    assert [panel["lines"] for panel in second["panels"]] == [
        list(range(10)),
        [None],
        [None, 10, 10],
    ]
    assert second["panels"][2]["colors"] == [None, "paper", "reference"]


def test_shows_key_numbers_and_the_run():
    page = page_of(numbers=(KeyNumber("How many?", "7 facts", "So."),), run=(("cores", "2"),))
    for text in ("How many?", "7 facts", "So.", "cores", "2"):
        assert text in page.text("p") + page.text("dt") + page.text("dd")


def test_contents_link_to_every_section(page):
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [link["href"][1:] for link in page.all("a") if link["href"].startswith("#")]
    anchors = [section.anchor for section in samples.report().sections]
    assert links == ["content", "run", *anchors, "claims"]
    assert set(links) <= set(ids)


def test_heading_levels_are_nested(page):
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_plots_are_described_for_screen_readers():
    page = page_of(
        plots.plot(
            plots.chart(plots.line("a"), plots.line("b")), plots.heat_map(value_label="share")
        )
    )
    chart, heat_map = (div["aria-label"] for div in page.all("div", role="img"))
    assert "A chart of facts against parameters, with lines for a, b" in chart
    assert "A map of share over subjects S and relations R" in heat_map
    assert "Figure 4, left: A title" in chart


def test_shows_paragraphs_and_captions(page):
    assert {"First paragraph.", "Second paragraph."} <= set(page.text("p"))
    assert page.text("figcaption") == ["A caption.", plots.IMAGE]


def test_slopes_show_whether_they_hold():
    page = page_of(plots.scaling())
    assert [item["class"] for item in page.all("li") if "class" in item] == ["good", "bad", "bad"]
    holds, fails, missing = (t for t in page.text("li") if "linear" in t or "<b>" in t)
    assert holds.endswith(": holds.")
    assert fails.endswith("does not hold here. Not a statement of the paper.")
    assert "no law can be fitted" in missing


def test_the_csv_file_has_all_data(page):
    link = page.all("a", download="figure-2-left.csv")[0]
    assert urllib.parse.unquote(link["href"].partition(",")[2]).startswith(
        "name,parameters,facts\n"
    )
    hostile = samples.report().sections[1]
    (link,) = page.all("a", download=f"{hostile.anchor}.csv")
    content = urllib.parse.unquote(link["href"].removeprefix("data:text/csv;charset=utf-8,"))
    rows = list(csv.reader(io.StringIO(content, newline="")))
    data = [["" if cell is None else str(cell) for cell in row] for row in hostile.plot.data.rows]
    assert rows == [list(hostile.plot.data.header), *data]


def test_long_tables_are_cut():
    page = page_of(plots.plot(data=plots.table(*[["a", k, math.pi] for k in range(501)])))
    assert page.text("td").count("3.14159") == 500
    assert "The CSV file has 1 more row." in page.text("p")
    assert page.text("summary") == ["The numbers (501 rows)"]


def test_maps_have_no_scale_buttons():
    page = page_of(plots.plot(plots.heat_map(), plots.chart(plots.line("a"))))
    buttons = page.all("button", **{"class": "scale"})
    assert [(b["data-panel"], b["data-axis"]) for b in buttons] == [("1", "x"), ("1", "y")]
    assert [b["aria-pressed"] for b in buttons] == ["true", "true"]


def verdict_of(checked):
    page = page_of(claims=(checked,))
    (cell,) = [attrs["class"] for attrs in page.all("td") if "verdict" in attrs.get("class", "")]
    return page, cell.removeprefix("verdict "), page.text("td")[0].strip()


@pytest.mark.parametrize(
    ("fields", "rating", "text"),
    [
        ({"verdict": Verdict.HOLDS}, "good", "holds"),
        ({"verdict": Verdict.HOLDS_WITHIN, "max_deviation": 0.031}, "good", "holds within 3.1%"),
        ({"verdict": Verdict.FAILS}, "bad", "fails"),
        ({"verdict": Verdict.NOT_CHECKABLE}, "unknown", "not checkable here"),
        (
            {"verdict": Verdict.FAILS, "refuted": True},
            "good",
            "fails, as expected: it is a misreading",
        ),
        ({"verdict": Verdict.HOLDS, "refuted": True}, "bad", "holds, unexpectedly"),
    ],
)
def test_shows_the_verdict(fields, rating, text):
    assert verdict_of(samples.checked_claim(**fields))[1:] == (rating, text)


def test_shows_measured_and_expected_values():
    bad = Check("loss", math.nan, "at most 2", False)
    page, *_ = verdict_of(
        samples.checked_claim(Verdict.FAILS, Check("facts", 1.5, "at least 1", True), bad)
    )
    assert page.text("li") == ["facts: 1.5 (at least 1)", "loss: not a number (at most 2)"]
    assert "Does not hold: " in page.text("span")


def test_shows_the_method_and_the_runs():
    page, *_ = verdict_of(
        samples.checked_claim(note="A note.", scale="paper", runs_read=4, seeds=(0,))
    )
    texts = page.text("p")
    assert {"It is so.", "Theorem 1", "By looking.", "A note."} <= set(texts)
    source = "Paper measurement: 1 seed, 6 runs (4 from the run store), 1.5 s on one core."
    assert source in texts


def test_verdicts_can_be_filtered(page):
    buttons = [button["data-verdict"] for button in page.all("button", **{"class": "filter"})]
    rows = [attrs["data-verdict"] for attrs in page.all("tr") if "data-verdict" in attrs]
    assert buttons == ["", *sorted(set(rows))]
    assert "fails, as expected" in buttons
    assert not page_of(claims=(samples.checked_claim(),)).all("button", **{"class": "filter"})


def test_the_summary_names_unexpected_claims(page):
    assert (
        "3 of 5 claims are as expected. Not as expected: fails-it, unknown-it." in page.visible_text
    )
    assert "1 of 1 claims are as expected." in page_of(claims=(samples.checked_claim(),)).text("p")


def test_writes_the_report_atomically(tmp_path):
    report = samples.report_of(plots.plot())
    write_report(report, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == report_html(report)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_empty_report_is_a_page():
    page = page_of(plots.plot())
    assert "A report" in page.text("h1")
    assert Section(plots.plot(), "").paragraphs == ()
