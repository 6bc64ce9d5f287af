"""Claims on constructed transformers: they hold at small sizes, and fail when broken."""

from dataclasses import replace

import equinox as eqx
import pytest
from tests.paper.here import holds_then_fails

from factmem import transformer
from factmem.paper import claims_section_4 as claims
from factmem.transformer.constructions import denoiser


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
}


@pytest.mark.parametrize("name", BROKEN)
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)
