"""What a report says."""

import pytest
from tests.report import made

from factmem._core.errors import FactmemError
from factmem.report import Section


@pytest.mark.parametrize(
    ("name", "title", "heading"),
    [
        ("4-left", "facts by parameters", "Figure 4, left: facts by parameters"),
        ("3", "stages", "Figure 3: stages"),
        ("4-left", "Figure 4, left: facts", "Figure 4, left: facts"),
        ("bounds", "bits held", "bits held"),
    ],
)
def test_headings_have_the_number_of_the_figure_in_the_paper(name, title, heading):
    assert Section(made.plot(name=name, title=title), "").heading == heading


@pytest.mark.parametrize(
    ("name", "anchor"),
    [
        ("4-left", "figure-4-left"),
        ("../Ä B<c>", "figure-b-c"),
        ("<>", "figure-x"),
    ],
)
def test_anchors_are_fit_for_names_of_files(name, anchor):
    assert Section(made.plot(name=name), "").anchor == anchor


def test_a_blank_line_parts_paragraphs():
    told = "one\nstill one\n\n  \n two \n\n"
    assert Section(made.plot(), told).paragraphs == ("one\nstill one", "two")


def test_two_figures_of_one_name_are_refused():
    with pytest.raises(FactmemError, match="figure-4-left"):
        made.of(made.plot(), made.plot(name="4 left"))
