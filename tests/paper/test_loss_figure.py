"""Figure 5 with made-up losses, and measured at a small size."""

import math

import numpy as np
import pytest
from tests.paper.stand_ins import column
from tests.plotting.sample_curves import POPULATION, TIMES, curves

from factmem.dynamics import find_stages
from factmem.experiments.flow_spec import FlowSpec, SGDConfig
from factmem.paper.loss_figure import TABLE_SIZES, loss_figure, measure_losses

STEPS = [0.0, 1000.0, 4000.0, 8192.0]
CONFIG = {
    "attention": "linear",
    "dim": None,
    "learning_rate": 0.1,
    "steps": 8192,
    "batch_size": 1024,
}


def make_run(init_end=900.0, hallucination_end=4100.0, exact=False):
    run = {
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
        run |= {"exact_steps": [0.0, 8192.0], "exact_loss": [3.4, 0.2]}
    return run


def draw(*runs):
    figure = loss_figure("5-left", "A title", "text", "We ran it.", range(len(runs)), CONFIG)
    return figure.plot(list(runs))


def test_levels_are_the_losses_without_knowledge_and_with_relations_only():
    assert TABLE_SIZES == (16, 4, 8)
    (chart,) = draw(make_run()).panels
    assert [(level.name, level.y) for level in chart.levels] == [
        ("ln 32", pytest.approx(3.4657, abs=1e-4)),
        ("ln 8", pytest.approx(2.0794, abs=1e-4)),
    ]


def test_spans_of_the_stages_fill_the_axis():
    (chart,) = draw(make_run()).panels
    assert [(span.name, span.start, span.end) for span in chart.spans] == [
        ("initialization", 0.0, 900.0),
        ("hallucination", 900.0, 4100.0),
        ("convergence", 4100.0, 8192.0),
    ]


@pytest.mark.parametrize("ends", [(None, None), (900.0, None), (None, 4100.0)])
def test_a_run_without_stages_has_no_spans(ends):
    plot = draw(make_run(*ends))
    assert plot.panels[0].spans == ()
    assert "No seed has a hallucination stage here." in plot.caption


def test_plot_shows_the_first_seed_and_the_caption_the_range():
    plot = draw(make_run(exact=True), make_run(1100.0, 5000.0), make_run(None, None))
    (chart,) = plot.panels
    assert [(line.name, line.kind) for line in chart.lines] == [
        ("total", "curve"),
        ("relation loss", "curve"),
        ("subject loss", "curve"),
        ("total, exact gradient flow", "reference"),
    ]
    assert chart.lines[0].y == (3.4, 2.2, 2.1, 0.1)
    assert chart.lines[3].x == (0.0, 8192.0)
    assert chart.spans[1].end == 4100
    assert "begins after 900 to 1,100 steps and ends after 4,100 to 5,000 (2 of 3" in plot.caption
    assert column(plot, "seed") == [0] * 4 + [1] * 4 + [2] * 4
    assert column(plot, "step") == 3 * STEPS
    assert column(plot, "subject_loss")[:4] == [2.0, 2.1, 2.0, 0.1]


def test_caption_has_one_number_if_all_seeds_agree():
    caption = draw(make_run(), make_run()).caption
    assert "begins after 900 steps and ends after 4,100 (2 of 2" in caption


class MadeUpInstance:
    """An instance with made-up curves, whose times are in units of the flow."""

    def __init__(self, table):
        self.table, self.population, self.config = table, POPULATION, None

    def sgd(self, config, *, times, dim=None):
        self.config = config
        return curves()

    softmax_sgd = sgd

    def flow(self, *, until, times):
        assert until == pytest.approx(800)
        return curves()


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_times_are_converted_to_steps(monkeypatch, attention):
    """At rate 0.5 a time of 800 is 1,600 steps."""
    instances = []

    def draw_instance(spec):
        instances.append(MadeUpInstance(spec.table.draw(spec.seed)))
        return instances[-1]

    monkeypatch.setattr(FlowSpec, "draw", draw_instance)
    result = measure_losses(
        attention=attention, subjects=16, relations=4, answers=8, dim=None, learning_rate=0.5,
        steps=1600, batch_size=64, seed=0,
    )  # fmt: skip
    stages = find_stages(curves(), POPULATION)
    assert result["init_end"] == pytest.approx(2 * stages.init_end)
    assert result["hallucination_end"] == pytest.approx(2 * stages.hallucination_end)
    np.testing.assert_allclose(result["steps"], 2 * TIMES)
    np.testing.assert_allclose(result["loss"], curves().loss)
    np.testing.assert_allclose(result["subject_loss"], curves().statistics.subject_loss)
    assert (result["uniform"], result["relation"]) == pytest.approx((math.log(32), math.log(8)))
    assert ("exact_loss" in result) is (attention == "linear")
    assert instances[0].config == SGDConfig(0.5, 1600, 64)
    plot = loss_figure("5-left", "t", "t", "r", [0], CONFIG).plot([result])
    assert plot.panels[0].spans[2].end == pytest.approx(1600)


@pytest.mark.slow  # compilation takes most of a minute on a busy machine
def test_losses_start_without_knowledge_and_add_up():
    result = measure_losses(
        attention="linear", subjects=4, relations=2, answers=2, dim=None, learning_rate=0.1,
        steps=64, batch_size=64, seed=0,
    )  # fmt: skip
    assert result["uniform"] == pytest.approx(math.log(4))
    assert result["relation"] == pytest.approx(math.log(2))
    assert result["loss"][0] == pytest.approx(math.log(4), abs=1e-3)
    np.testing.assert_allclose(
        np.add(result["relation_loss"], result["subject_loss"]), result["loss"], atol=1e-4
    )
    assert result["steps"][0] == 0
    assert result["steps"][-1] == pytest.approx(64)
    assert np.all(np.diff(result["steps"]) > 0)
    assert result["exact_steps"][-1] == pytest.approx(64)
    assert result["exact_loss"][0] == pytest.approx(result["loss"][0], abs=1e-5)
    assert result["exact_loss"][-1] == pytest.approx(result["loss"][-1], abs=0.02)
