"""Figure 5, right: the experiment, and the claim on the stages of a softmax head."""

import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken, clear_compiled

from factmem.experiments.flow_spec import FlowInstance
from factmem.paper.figure_5_right import figure_5_right, softmax_stages


def reduce_rate(monkeypatch):
    original = FlowInstance.softmax_sgd

    def broken(self, config, **options):
        return original(self, config._replace(learning_rate=config.learning_rate / 1e6), **options)

    monkeypatch.setattr(FlowInstance, "softmax_sgd", broken)


BROKEN = {"softmax-stages": (lambda: softmax_stages([0]), reduce_rate)}


@pytest.mark.slow
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path):
    try:
        assert_holds_and_fails_when_broken(*BROKEN["softmax-stages"], monkeypatch, tmp_path)
    finally:
        clear_compiled()


@pytest.mark.parametrize(("scale", "seeds"), [("quick", [0, 1, 2]), ("paper", [0, 1, 2, 3, 4])])
def test_both_scales_run_the_experiment_of_the_paper(scale, seeds):
    tasks = figure_5_right(scale).measurement.tasks
    assert [task.seed for task in tasks] == seeds
    for task in tasks:
        assert task.config["attention"] == "softmax"
        sizes = tuple(task.config[name] for name in ("subjects", "relations", "answers"))
        assert sizes == (16, 4, 8)


def test_claim_has_five_seeds_at_paper_scale():
    tasks = softmax_stages([3, 4, 5]).paper_measurement.tasks
    assert [task.seed for task in tasks] == [3, 4, 5, 6, 7]
    assert {task.config["sgd"]["steps"] for task in tasks} == {4096}
