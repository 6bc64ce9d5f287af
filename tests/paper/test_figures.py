"""The list of figures as a whole."""

import pytest

from factmem._core.errors import FactmemError
from factmem.experiments import Measurement
from factmem.paper import FIGURES, all_figures, figure_named

NAMES = ["1-left", "1-right", "2", "3", "4-left", "4-right", "5-left", "5-right"]
NAMES += ["6", "7", "8", "9"]


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_every_figure_of_the_paper_is_there_in_its_order(scale):
    figures = all_figures(scale)
    assert [figure.name for figure in figures] == NAMES == list(FIGURES)
    for figure in figures:
        number = figure.name.split("-")[0]
        assert figure.title.startswith(f"Figure {number}")
        assert len(figure.told) > 80
        assert figure.told.endswith((".", "?"))
        assert isinstance(figure.measured, Measurement)
        needed = figure.measured.pending({}).needed
        assert needed
        assert all(task.experiment.stored for task in needed), "drawing it again takes seconds"


def test_titles_say_which_side():
    for figure in all_figures():
        side = figure.name.partition("-")[2]
        assert (f", {side}:" in figure.title) is bool(side)


def test_a_figure_by_its_name_and_scale():
    assert figure_named("4-right").name == "4-right"
    quick, paper = (figure_named("4-right", scale).measured.tasks for scale in ("quick", "paper"))
    assert len(paper) == 13 * 13
    assert len(quick) < len(paper)


@pytest.mark.parametrize("name", ["5", "10", "", "4-Left", "figure 2", "2\n"])
def test_a_figure_that_there_is_not(name):
    with pytest.raises(FactmemError, match=r"no figure '.*'; there are 1-left, 1-right, 2") as told:
        figure_named(name)
    assert "\n" not in str(told.value)


def test_both_scales_of_what_is_not_trained_are_the_same():
    for name in ("2", "3"):
        quick, paper = (figure_named(name, scale).measured for scale in ("quick", "paper"))
        assert [t.identity for t in quick.tasks] == [t.identity for t in paper.tasks]


def test_quick_figures_have_three_seeds_and_the_papers_are_those_of_the_authors():
    def seeds(name, scale):
        return {task.seed for task in figure_named(name, scale).measured.pending({}).needed}

    for name in ("1-left", "1-right", "6"):
        assert seeds(name, "quick") == {0, 1, 2}
        assert seeds(name, "paper") == {0, 1, 11, 111, 42}
    assert seeds("7", "quick") == {0, 1, 2}
    assert seeds("7", "paper") == {64}
