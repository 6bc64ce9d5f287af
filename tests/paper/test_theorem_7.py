"""Claims of Theorem 7: they hold at small sizes, and fail when the code is broken."""

import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken, replace_memory_measurement

from factmem import bounds
from factmem.bounds import Zipf
from factmem.paper import theorem_7 as claims


def convert_to_nats(monkeypatch):
    original = bounds.min_loss
    monkeypatch.setattr(bounds, "min_loss", lambda *a: original(*a) * 0.6931)


def flatten_tail(monkeypatch):
    original = Zipf.tail
    monkeypatch.setattr(Zipf, "tail", lambda self, known: original(self, known) ** 0.5)


def store_by_weights(*, dim, width, facts, **_):
    return {"stored": facts <= 0.75 * dim * (width or dim)}


@pytest.fixture(autouse=True)
def quick_searches(monkeypatch):
    """Replace the fits of capacity searches, which have their own tests."""
    replace_memory_measurement(monkeypatch, store_by_weights)


BROKEN = {
    "theorem-7": (lambda: claims.theorem_7([0, 1], 3, 4), convert_to_nats),
    "scaling-law": (lambda: claims.scaling_law([0], (1.5, 2.0)), flatten_tail),
    "bound-met": (lambda: claims.bound_met([0]), flatten_tail),
}


@pytest.mark.parametrize("name", BROKEN)
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)
