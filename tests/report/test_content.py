"""The content of a report."""

import pytest
from tests.plotting import samples
from tests.report.samples import report_of

from factmem._core.errors import FactmemError
from factmem.report import Section


@pytest.mark.parametrize(
    ("name", "title", "heading"),
    [
        ("4-left", "facts by parameters", "Figure 4, left: facts by parameters"),
        ("3", "stages", "Figure 3: stages"),
        ("4-left", "Figure 4, left: facts", "Figure 4, left: facts"),
        ("bounds", "bits stored", "bits stored"),
    ],
)
def test_headings_have_the_number_in_the_paper(name, title, heading):
    assert Section(samples.plot(name=name, title=title), "").heading == heading


@pytest.mark.parametrize(
    ("name", "anchor"),
    [
        ("4-left", "figure-4-left"),
        ("../Ä B<c>", "figure-b-c"),
        ("<>", "figure-x"),
    ],
)
def test_anchors_are_safe_in_file_names(name, anchor):
    assert Section(samples.plot(name=name), "").anchor == anchor


def test_blank_lines_separate_paragraphs():
    text = "one\nstill one\n\n  \n two \n\n"
    assert Section(samples.plot(), text).paragraphs == ("one\nstill one", "two")


def test_rejects_two_figures_of_one_name():
    with pytest.raises(FactmemError, match="figure-4-left"):
        report_of(samples.plot(), samples.plot(name="4 left"))
