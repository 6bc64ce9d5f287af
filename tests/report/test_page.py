"""The page as text; what a browser makes of it is in test_browser."""

import csv
import io
import itertools
import json
import math
import urllib.parse
from html.parser import HTMLParser

import pytest
from tests.report import made

from factmem.paper.claim import Check, Verdict
from factmem.plotting import interactive
from factmem.report import KeyNumber, Section, report_html, write_report


class Page(HTMLParser):
    """Tags, and texts by the tag that they stand in."""

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

    def all(self, tag, **wanted):
        found = (attrs for each, attrs in self.tags if each == tag)
        return [attrs for attrs in found if wanted.items() <= attrs.items()]

    def text(self, tag):
        return [data for where, data in self.texts if where == tag]

    @property
    def shown(self):
        return "".join(data for where, data in self.texts if where not in ("script", "style"))


@pytest.fixture(scope="module")
def text():
    return report_html(made.report())


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def page_of(*plots, **given):
    return Page(report_html(made.of(*plots, **given)))


def test_the_page_is_small_enough_to_send(text):
    assert 4e6 < len(text.encode()) < 8e6


def test_names_bring_no_tags(page):
    assert len(page.all("script")) == 3
    assert not page.all("img") + page.all("b")
    assert all(link["href"].startswith(("#", "data:text/csv")) for link in page.all("a"))
    assert {name for _, attrs in page.tags for name in attrs if name.startswith("on")} == set()
    for name in (made.SCRIPT, made.CLOSING, made.IMAGE, made.BOLD, made.ENTITY):
        assert name in page.shown


def test_only_our_own_scripts_may_run_and_nothing_is_fetched(page):
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; script-src 'sha256-")
    assert policy["content"].count("sha256-") == 2
    assert not [attrs for _, attrs in page.tags if "src" in attrs]
    assert not page.all("link")


def test_data_for_the_script_cannot_end_it(text, page):
    data = text.split('id="figures">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028\u2029")
    figures = json.loads(data)
    sections = made.report().sections
    assert [figure["anchor"] for figure in figures] == [each.anchor for each in sections]
    for figure, section in zip(figures, sections, strict=True):
        found = [{key: panel[key] for key in ("data", "layout")} for panel in figure["panels"]]
        assert found == interactive(section.plot)


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


def test_key_numbers_and_what_was_run_stand_on_the_page():
    page = page_of(numbers=(KeyNumber("How many?", "7 facts", "So."),), run=(("cores", "2"),))
    for said in ("How many?", "7 facts", "So.", "cores", "2"):
        assert said in page.text("p") + page.text("dt") + page.text("dd")


def test_contents_lead_to_every_part(page):
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [link["href"][1:] for link in page.all("a") if link["href"].startswith("#")]
    anchors = [section.anchor for section in made.report().sections]
    assert links == ["content", "run", *anchors, "claims"]
    assert set(links) <= set(ids)


def test_headings_are_in_order(page):
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_plots_are_described_for_those_who_do_not_see_them():
    page = page_of(
        made.plot(made.chart(made.line("a"), made.line("b")), made.heat_map(unit="share"))
    )
    chart, heat = (each["aria-label"] for each in page.all("div", role="img"))
    assert "A chart of facts against parameters, with lines for a, b" in chart
    assert "A map of share over subjects S and relations R" in heat
    assert "Figure 4, left: A title" in chart


def test_paragraphs_and_the_caption_are_told(page):
    assert {"First paragraph.", "Second paragraph."} <= set(page.text("p"))
    assert page.text("figcaption") == ["A caption.", made.IMAGE]


def test_slopes_say_whether_they_hold():
    page = page_of(made.scaling())
    assert [each["class"] for each in page.all("li") if "class" in each] == ["good", "bad", "bad"]
    holds, fails, missing = (each for each in page.text("li") if "linear" in each or "<b>" in each)
    assert holds.endswith(": holds.")
    assert fails.endswith("does not hold here. Not a statement of the paper.")
    assert "no line can be fitted" in missing


def test_the_file_of_data_holds_every_number(page):
    link = page.all("a", download="figure-2-left.csv")[0]
    assert urllib.parse.unquote(link["href"].partition(",")[2]).startswith(
        "name,parameters,facts\n"
    )
    hostile = made.report().sections[1]
    (link,) = page.all("a", download=f"{hostile.anchor}.csv")
    content = urllib.parse.unquote(link["href"].removeprefix("data:text/csv;charset=utf-8,"))
    rows = list(csv.reader(io.StringIO(content, newline="")))
    told = [["" if cell is None else str(cell) for cell in row] for row in hostile.plot.data.rows]
    assert rows == [list(hostile.plot.data.header), *told]


def test_tables_show_the_numbers_and_long_ones_their_beginning():
    page = page_of(made.plot(data=made.table(*[["a", k, math.pi] for k in range(501)])))
    assert page.text("td").count("3.14159") == 500
    assert "1 more rows are in the CSV file." in page.text("p")
    assert page.text("summary") == ["The numbers (501 rows)"]


def test_maps_have_no_buttons_for_scales():
    page = page_of(made.plot(made.heat_map(), made.chart(made.line("a"))))
    buttons = page.all("button", **{"class": "scale"})
    assert [(each["data-panel"], each["data-axis"]) for each in buttons] == [("1", "x"), ("1", "y")]
    assert [each["aria-pressed"] for each in buttons] == ["true", "true"]


def verdict_of(checked):
    page = page_of(claims=(checked,))
    (cell,) = [attrs["class"] for attrs in page.all("td") if "verdict" in attrs.get("class", "")]
    return page, cell.removeprefix("verdict "), page.text("td")[0].strip()


@pytest.mark.parametrize(
    ("given", "mood", "told"),
    [
        ({"verdict": Verdict.HOLDS}, "good", "holds"),
        ({"verdict": Verdict.WITHIN, "within": 0.031}, "good", "holds within 3.1 %"),
        ({"verdict": Verdict.FAILS}, "bad", "fails"),
        ({"verdict": Verdict.NOT_CHECKABLE}, "unknown", "not checkable here"),
        ({"verdict": Verdict.FAILS, "refuted": True}, "good", "fails, as it should: a misreading"),
        ({"verdict": Verdict.HOLDS, "refuted": True}, "bad", "holds, though it is a misreading"),
    ],
)
def test_verdicts_are_told_in_words(given, mood, told):
    assert verdict_of(made.checked(**given))[1:] == (mood, told)


def test_evidence_says_what_was_measured_and_what_was_wanted():
    wrong = Check("loss", math.nan, "at most 2", False)
    page, *_ = verdict_of(
        made.checked(Verdict.FAILS, Check("facts", 1.5, "at least 1", True), wrong)
    )
    assert page.text("li") == ["facts: 1.5 (at least 1)", "loss: no number (at most 2)"]
    assert "Does not hold: " in page.text("span")


def test_claims_say_how_they_were_checked():
    page, *_ = verdict_of(made.checked(note="A note.", at_length=True, read=4, seeds=(0,)))
    said = page.text("p")
    assert {"It is so.", "Theorem 1", "By looking.", "A note."} <= set(said)
    assert "Slow measurement: 1 seed, 6 runs (4 kept from before), 1.5 s on one core." in said


def test_verdicts_can_be_chosen(page):
    buttons = [each["data-verdict"] for each in page.all("button", **{"class": "filter"})]
    rows = [attrs["data-verdict"] for attrs in page.all("tr") if "data-verdict" in attrs]
    assert buttons == ["", *sorted(set(rows))]
    assert "fails, as it should" in buttons
    assert not page_of(claims=(made.checked(),)).all("button", **{"class": "filter"})


def test_the_summary_names_claims_that_come_out_otherwise(page):
    assert "3 of 5 come out as they should. Those that do not: fails-it, unknown-it." in page.shown
    assert "1 of 1 come out as they should." in page_of(claims=(made.checked(),)).text("p")


def test_a_report_is_written_whole(tmp_path):
    report = made.of(made.plot())
    write_report(report, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == report_html(report)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_empty_report_is_a_page_too():
    page = page_of(made.plot())
    assert "A report" in page.text("h1")
    assert Section(made.plot(), "").paragraphs == ()
