"""Figures, and several figures as one measurement."""

import pytest
from tests.experiments.inline_workers import InlineWorkers
from tests.paper.stand_ins import simple_plot

from factmem._core.errors import FactmemError
from factmem.experiments import Experiment, IndependentTasks, Store, Task, execute, measure
from factmem.experiments.execute import failure_record
from factmem.paper import FigureGroup, PaperFigure
from factmem.plotting.plot import Line


def double(*, number):
    double.calls += 1
    return {"twice": 2.0 * number}


double.calls = 0
DOUBLE = Experiment("double", 1, double)


def make_figure(name, *numbers):
    def plot(results):
        twice = tuple(result["twice"] for result in results)
        return simple_plot(Line(name, tuple(map(float, numbers)), twice), name=name)

    tasks = tuple(Task(DOUBLE, {"number": number}) for number in numbers)
    return PaperFigure(name, "title", "description", IndependentTasks(tasks), plot)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def test_group_plots_every_figure_in_order(store):
    group = FigureGroup([make_figure("b", 3, 1), make_figure("a", 2)])
    plots = measure(group, store, InlineWorkers())
    assert [plot.name for plot in plots] == ["b", "a"]
    assert [plot.panels[0].lines[0].y for plot in plots] == [(6, 2), (4,)]


def test_group_executes_shared_tasks_once(store):
    before = double.calls
    group = FigureGroup([make_figure("a", 1, 2), make_figure("b", 2, 3)])
    assert len(group.pending({}).needed) == len(group.used_tasks({})) == 3
    assert group.remaining({}) == 4
    measure(group, store, InlineWorkers())
    assert double.calls == before + 3
    known = {record.identity: record for record in store.records()}
    assert not group.pending(known).needed
    assert group.remaining(known) == 0


def test_empty_group_needs_no_work(store):
    assert measure(FigureGroup([]), store, InlineWorkers()) == []


def test_rejects_missing_or_failed_runs_unless_partial_figures_are_allowed():
    figure = make_figure("a", 1, 2)
    first, second = figure.measurement.tasks
    message = "figure a needs all of its runs; 1 run is missing"
    with pytest.raises(FactmemError, match=message):
        figure.draw({first.identity: execute(first)})
    failed = failure_record(second, ZeroDivisionError(), 1.0)
    with pytest.raises(FactmemError, match="figure a cannot be drawn because one of its runs"):
        figure.draw({first.identity: execute(first), second.identity: failed})
