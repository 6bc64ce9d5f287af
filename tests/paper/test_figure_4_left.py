"""Figure 4, left: facts in proportion to parameters."""

from dataclasses import replace

import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken, check, evidence

from factmem import training
from factmem.experiments import Experiment, Store, transformer_capacity
from factmem.paper.figure_4_left import facts_per_parameter


def train_briefly(monkeypatch):
    protocol = replace(training.QUICK, learning_rates=(1e-9,), steps=128)
    monkeypatch.setattr(training, "QUICK", protocol)


def replace_training(monkeypatch, exponent):
    """Let a shape store parameters^exponent / 10 facts."""

    def store(*, dim, heads, head_dim, width, subjects, relations, seed, **_):
        parameters = 4 * heads * dim * head_dim + 2 * width * dim
        return {"stored": subjects * relations <= (1 + seed / 20) * parameters**exponent / 10}

    experiment = Experiment("law", int(10 * exponent), store)
    monkeypatch.setattr(transformer_capacity, "EXPERIMENT", experiment)


BROKEN = {
    "facts-per-parameter": (
        lambda: facts_per_parameter([0, 1], {"Figure 4: S = R, H = 8": (16, 32)}),
        train_briefly,
    )
}


@pytest.mark.slow  # training takes minutes, or seconds on an idle machine
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path):
    assert_holds_and_fails_when_broken(*BROKEN["facts-per-parameter"], monkeypatch, tmp_path)


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, "holds"), (1.5, "fails"), (0.6, "fails")])
def test_claim_holds_only_if_facts_are_proportional_to_parameters(
    monkeypatch, tmp_path, exponent, verdict
):
    replace_training(monkeypatch, exponent)
    with Store(tmp_path / "runs.sqlite") as store:
        checked = check(facts_per_parameter([0, 1]), store)
    assert checked.finding.verdict.label == verdict, evidence(checked)
