"""Figure 5, drawn of losses that are made up, and measured at a small size."""

import math

import numpy as np
import pytest
from tests.paper.made import column
from tests.plotting.test_flow_curves import QUESTIONS, TIMES, curves

import factmem.dynamics
from factmem.dynamics import find_stages
from factmem.paper import figure_named
from factmem.paper.loss_curves import SIZES, loss_figure, measure_losses

STEPS = [0.0, 1000.0, 4000.0, 8192.0]
CONFIG = {"attention": "linear", "dim": None, "rate": 0.1, "steps": 8192, "batch": 1024}


def run(init_end=900.0, hallucination_end=4100.0, exact=False):
    given = {
        "steps": STEPS,
        "loss": [3.4, 2.2, 2.1, 0.1],
        "relation_loss": [1.4, 0.1, 0.05, 0.0],
        "subject_loss": [2.0, 2.1, 2.0, 0.1],
        "init_end": init_end,
        "hallucination_end": hallucination_end,
        "uniform": math.log(32),
        "relation": math.log(8),
    }
    if exact:
        given |= {"exact_steps": [0.0, 8192.0], "exact_loss": [3.4, 0.2]}
    return given


def drawn(*runs):
    figure = loss_figure("5-left", "A title", "told", "We ran it.", range(len(runs)), CONFIG)
    return figure.plot(list(runs))


def test_levels_are_the_losses_of_knowing_nothing_and_of_knowing_relations():
    assert SIZES == (16, 4, 8)
    (chart,) = drawn(run()).panels
    assert [(level.name, level.y) for level in chart.levels] == [
        ("ln 32", pytest.approx(3.4657, abs=1e-4)),
        ("ln 8", pytest.approx(2.0794, abs=1e-4)),
    ]


def test_stages_are_spans_that_fill_the_axis():
    (chart,) = drawn(run()).panels
    assert [(span.name, span.start, span.end) for span in chart.spans] == [
        ("initialization", 0.0, 900.0),
        ("hallucination", 900.0, 4100.0),
        ("convergence", 4100.0, 8192.0),
    ]


@pytest.mark.parametrize("ends", [(None, None), (900.0, None), (None, 4100.0)])
def test_a_run_without_stages_has_no_spans(ends):
    plot = drawn(run(*ends))
    assert plot.panels[0].spans == ()
    assert "No seed has a hallucination stage here." in plot.caption


def test_the_first_seed_is_drawn_and_all_are_told():
    plot = drawn(run(exact=True), run(1100.0, 5000.0), run(None, None))
    (chart,) = plot.panels
    assert [(line.name, line.kind) for line in chart.lines] == [
        ("total", "curve"),
        ("relation only", "curve"),
        ("subject only", "curve"),
        ("total, exact gradient flow", "reference"),
    ]
    assert chart.lines[0].y == (3.4, 2.2, 2.1, 0.1)
    assert chart.lines[3].x == (0.0, 8192.0)
    assert chart.spans[1].end == 4100
    assert "begins after 900 to 1,100 steps and ends after 4,100 to 5,000 (2 of 3" in plot.caption
    assert column(plot, "seed") == [0] * 4 + [1] * 4 + [2] * 4
    assert column(plot, "step") == 3 * STEPS
    assert column(plot, "subject_loss")[:4] == [2.0, 2.1, 2.0, 0.1]


def test_seeds_that_agree_are_told_as_one_number():
    assert "begins after 900 steps and ends after 4,100 (2 of 2" in drawn(run(), run()).caption


def test_both_sides_measure_the_experiment_of_the_paper():
    for side, attention in (("5-left", "linear"), ("5-right", "softmax")):
        for scale, seeds in (("quick", [0, 1, 2]), ("paper", [0, 1, 2, 3, 4])):
            tasks = figure_named(side, scale).measured.tasks
            assert [task.seed for task in tasks] == seeds
            for task in tasks:
                assert task.config["attention"] == attention
                sizes = tuple(task.config[name] for name in ("subjects", "relations", "answers"))
                assert sizes == (16, 4, 8)


class Remembered:
    """An experiment whose curves are made up, in units of time as dynamics has them."""

    asked = ()

    def __init__(self, table, *, seed):
        self.table, self.population = table, QUESTIONS

    def descent(self, **settings):
        Remembered.asked = settings
        return curves()

    softmax_descent = descent

    def flow(self, *, until, times):
        assert until == pytest.approx(800)
        return curves()


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_times_are_told_as_steps(monkeypatch, attention):
    """At rate 0.5 a time of 800 is 1,600 steps; stages end as `find_stages` has it."""
    monkeypatch.setattr(factmem.dynamics, "FlowSpec", Remembered)
    found = measure_losses(
        attention=attention, subjects=16, relations=4, answers=8, dim=None, rate=0.5, steps=1600,
        batch=64, seed=0,
    )  # fmt: skip
    stages = find_stages(curves(), QUESTIONS)
    assert found["init_end"] == pytest.approx(2 * stages.init_end)
    assert found["hallucination_end"] == pytest.approx(2 * stages.hallucination_end)
    np.testing.assert_allclose(found["steps"], 2 * TIMES)
    np.testing.assert_allclose(found["loss"], curves().loss)
    np.testing.assert_allclose(found["subject_loss"], curves().seen.subject_loss)
    assert (found["uniform"], found["relation"]) == pytest.approx((math.log(32), math.log(8)))
    assert ("exact_loss" in found) is (attention == "linear")
    assert (Remembered.asked["rate"], Remembered.asked["batch"]) == (0.5, 64)
    plot = loss_figure("5-left", "t", "t", "r", [0], CONFIG).plot([found])
    assert plot.panels[0].spans[2].end == pytest.approx(1600)


# Compiling takes most of a minute on a busy machine.
@pytest.mark.slow
def test_losses_begin_at_knowing_nothing_and_add_up():
    """A descent of a few steps, small enough for a test: nothing is learned at first."""
    found = measure_losses(
        attention="linear", subjects=4, relations=2, answers=2, dim=None, rate=0.1, steps=64,
        batch=64, seed=0,
    )  # fmt: skip
    assert found["uniform"] == pytest.approx(math.log(4))
    assert found["relation"] == pytest.approx(math.log(2))
    assert found["loss"][0] == pytest.approx(math.log(4), abs=1e-3)
    np.testing.assert_allclose(
        np.add(found["relation_loss"], found["subject_loss"]), found["loss"], atol=1e-4
    )
    assert found["steps"][0] == 0
    assert found["steps"][-1] == pytest.approx(64)
    assert np.all(np.diff(found["steps"]) > 0)
    assert found["exact_steps"][-1] == pytest.approx(64)
    assert found["exact_loss"][0] == pytest.approx(found["loss"][0], abs=1e-5)
    assert found["exact_loss"][-1] == pytest.approx(found["loss"][-1], abs=0.02)
