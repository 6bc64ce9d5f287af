"""Several figures as one measurement."""

import pytest
from tests.paper.here import Here
from tests.paper.made import simple_plot

from factmem._core.errors import FactmemError
from factmem.experiments import Experiment, IndependentTasks, Store, Task, measure, execute
from factmem.experiments.execute import failure
from factmem.paper import Figures, PaperFigure
from factmem.plotting.plot import Line


def double(*, number):
    double.calls += 1
    return {"twice": 2.0 * number}


double.calls = 0
KEPT = Experiment("double", 1, double)


def figure(name, *numbers):
    def plot(results):
        twice = tuple(found["twice"] for found in results)
        return simple_plot(Line(name, tuple(map(float, numbers)), twice), name=name)

    tasks = tuple(Task(KEPT, {"number": number}) for number in numbers)
    return PaperFigure(name, "title", "told", IndependentTasks(tasks), plot)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as kept:
        yield kept


def test_every_figure_is_drawn_of_its_own_runs_in_their_order(store):
    plots = measure(Figures([figure("b", 3, 1), figure("a", 2)]), store, Here())
    assert [plot.name for plot in plots] == ["b", "a"]
    assert [plot.panels[0].lines[0].y for plot in plots] == [(6, 2), (4,)]


def test_what_two_figures_need_is_measured_once(store):
    before = double.calls
    both = Figures([figure("a", 1, 2), figure("b", 2, 3)])
    assert len(both.pending({}).needed) == 3
    assert both.remaining({}) == 4
    measure(both, store, Here())
    assert double.calls == before + 3
    known = {record.identity: record for record in store.records()}
    assert not both.pending(known).needed
    assert both.remaining(known) == 0


def test_no_figures_are_no_work(store):
    assert measure(Figures([]), store, Here()) == []


def test_what_is_drawn_whole_is_not_drawn_of_a_part_or_of_failures():
    whole = figure("a", 1, 2)
    first, second = whole.measured.tasks
    with pytest.raises(FactmemError, match="figure a is drawn whole, and 1 runs are missing"):
        whole.drawn({first.identity: execute(first)})
    failed = failure(second, ZeroDivisionError(), 1.0)
    with pytest.raises(FactmemError, match="figure a cannot be drawn, for a run of it failed"):
        whole.drawn({first.identity: execute(first), second.identity: failed})
