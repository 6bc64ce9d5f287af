"""Claims on trained transformers: they hold at small sizes, and fail when broken."""

from dataclasses import replace

import pytest
from tests.paper.here import checked, holds_then_fails, told

from factmem import training
from factmem.experiments import Experiment, Store
from factmem.experiments import transformer_capacity as questions
from factmem.paper import claims_trained as claims


def hardly_trained(monkeypatch):
    tiny = replace(training.QUICK, learning_rates=(1e-9,), steps=128)
    monkeypatch.setattr(training, "QUICK", tiny)


def stores(exponent):
    """A measurement by which a shape stores params^exponent / 10 facts."""

    def measure(*, dim, heads, head_dim, width, subjects, relations, seed, **_):
        parameters = 4 * heads * dim * head_dim + 2 * width * dim
        return {"stored": subjects * relations <= (1 + seed / 20) * parameters**exponent / 10}

    return measure


def measured(monkeypatch, exponent):
    measure = Experiment("law", int(10 * exponent), stores(exponent))
    monkeypatch.setattr(questions, "MEASURE", measure)


# For each claim: itself at a small size, and what breaks its implementation.
BROKEN = {
    "attention-against-mlp": (lambda: claims.attention_against_mlp([0]), hardly_trained),
    "facts-per-parameter": (
        lambda: claims.facts_per_parameter([0, 1], {"Figure 4: S = R, H = 8": (16, 32)}),
        hardly_trained,
    ),
}


# Training takes minutes, or seconds on a quiet machine.
@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, "holds"), (1.5, "fails"), (0.6, "fails")])
def test_facts_in_proportion_to_parameters(monkeypatch, tmp_path, exponent, verdict):
    measured(monkeypatch, exponent)
    with Store(tmp_path / "runs.sqlite") as store:
        found = checked(claims.facts_per_parameter([0, 1]), store)
    assert found.finding.verdict.value == verdict, told(found)
