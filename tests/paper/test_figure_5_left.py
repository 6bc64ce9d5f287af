"""Figure 5, left: the experiment, and the claim on the plateau."""

import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken

from factmem import dynamics
from factmem.paper.figure_5_left import figure_5_left, plateau


def double_rates(monkeypatch):
    original = dynamics.escape_rates

    def broken(population):
        rates = original(population)
        return rates._replace(relations=2 * rates.relations)

    monkeypatch.setattr(dynamics, "escape_rates", broken)


BROKEN = {"plateau": (lambda: plateau([0]), double_rates)}


def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path):
    assert_holds_and_fails_when_broken(*BROKEN["plateau"], monkeypatch, tmp_path)


@pytest.mark.parametrize(("scale", "seeds"), [("quick", [0, 1, 2]), ("paper", [0, 1, 2, 3, 4])])
def test_both_scales_run_the_experiment_of_the_paper(scale, seeds):
    tasks = figure_5_left(scale).measurement.tasks
    assert [task.seed for task in tasks] == seeds
    for task in tasks:
        assert task.config["attention"] == "linear"
        sizes = tuple(task.config[name] for name in ("subjects", "relations", "answers"))
        assert sizes == (16, 4, 8)
