"""Claims of Theorem 4: they hold at small sizes, and fail when the code is broken."""

from dataclasses import replace

import equinox as eqx
import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken

from factmem import transformer
from factmem.paper import theorem_4 as claims


def negate_mlp(monkeypatch):
    original = transformer.mlp_construction

    def broken(*arguments, **options):
        built = original(*arguments, **options)
        model = eqx.tree_at(lambda m: m.weights.mlp_out, built.model, replace_fn=lambda v: -v)
        return replace(built, model=model)

    monkeypatch.setattr(transformer, "mlp_construction", broken)


BROKEN = {
    "theorem-4": (lambda: claims.theorem_4([0], (8, 16)), negate_mlp),
    "repeated-answers": (lambda: claims.repeated_answers([0]), negate_mlp),
    "partial-tables": (lambda: claims.partial_tables([0], facts=(32, 128)), negate_mlp),
}


@pytest.mark.parametrize("name", BROKEN)
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)
