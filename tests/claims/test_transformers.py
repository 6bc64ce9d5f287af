"""Claims on transformers: they hold at small sizes, and fail when what they check is broken."""

from dataclasses import replace

import equinox as eqx
import pytest
from tests.claims.here import checked, holds_then_fails, nightly, told

from factmem import training, transformer
from factmem.capacity import transformers as questions
from factmem.claims import transformers as claims
from factmem.runs import Measure, Store
from factmem.transformer import denoiser


def wrong_threshold(monkeypatch):
    right = denoiser.superposed_key
    monkeypatch.setattr(denoiser, "superposed_key", lambda *a: right(*a, threshold=-0.5))


def changed(name, where, change):
    """A construction of which one tensor is changed."""

    def breaks(monkeypatch):
        right = getattr(transformer, name)

        def broken(*arguments, **options):
            built = right(*arguments, **options)
            return replace(built, model=eqx.tree_at(where, built.model, replace_fn=change))

        monkeypatch.setattr(transformer, name, broken)

    return breaks


half_written = changed("attention_construction", lambda m: m.weights.output, lambda o: o / 2)
wrong_sign = changed("mlp_construction", lambda m: m.weights.mlp_out, lambda v: -v)


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
    measure = Measure("law", int(10 * exponent), stores(exponent))
    monkeypatch.setattr(questions, "MEASURE", measure)


# For each claim: itself at a small size, and what breaks its implementation.
BROKEN = {
    "superposed-tokens": (
        lambda: claims.superposed_tokens([0, 1], dims=(1024, 2048, 4096), tokens=1024),
        wrong_threshold,
    ),
    "theorem-3": (
        lambda: claims.theorem_3([0]),
        half_written,
    ),
    "theorem-4": (
        lambda: claims.theorem_4([0], (8, 16)),
        wrong_sign,
    ),
    "repeated-answers": (lambda: claims.repeated_answers([0, 1]), wrong_sign),
    "partial-tables": (
        lambda: claims.partial_tables([0], facts=(32, 128)),
        wrong_sign,
    ),
    "attention-against-mlp": (lambda: claims.attention_against_mlp([0]), hardly_trained),
    "facts-per-parameter": (
        lambda: claims.facts_per_parameter([0, 1], {"Figure 4: S = R, H = 8": (16, 32)}),
        hardly_trained,
    ),
}
# Training takes minutes, or seconds on a quiet machine: these are nightly tests.
SLOW = ("attention-against-mlp", "facts-per-parameter")


@pytest.mark.parametrize("name", nightly(BROKEN, SLOW))
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, "holds"), (1.5, "fails"), (0.6, "fails")])
def test_facts_in_proportion_to_parameters(monkeypatch, tmp_path, exponent, verdict):
    measured(monkeypatch, exponent)
    with Store(tmp_path / "runs.sqlite") as store:
        found = checked(claims.facts_per_parameter([0, 1]), store)
    assert found.finding.verdict.value == verdict, told(found)
