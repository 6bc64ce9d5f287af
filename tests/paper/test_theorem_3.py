"""Claims of Theorem 3: they hold at small sizes, and fail when the code is broken."""

from dataclasses import replace

import equinox as eqx
import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken

from factmem import transformer
from factmem.paper import theorem_3 as claims
from factmem.transformer.constructions import denoiser


def change_threshold(monkeypatch):
    original = denoiser.superposed_keys
    monkeypatch.setattr(denoiser, "superposed_keys", lambda *a: original(*a, threshold=-0.5))


def halve_outputs(monkeypatch):
    original = transformer.attention_construction

    def broken(*arguments, **options):
        built = original(*arguments, **options)
        model = eqx.tree_at(lambda m: m.weights.output, built.model, replace_fn=lambda o: o / 2)
        return replace(built, model=model)

    monkeypatch.setattr(transformer, "attention_construction", broken)


BROKEN = {
    "superposed-tokens": (
        lambda: claims.superposed_tokens([0, 1], dims=(1024, 2048, 4096), tokens=1024),
        change_threshold,
    ),
    "theorem-3": (lambda: claims.theorem_3([0]), halve_outputs),
}


@pytest.mark.parametrize("name", BROKEN)
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)
