"""Claims of Theorem 6: they hold at small sizes, and fail when the code is broken."""

import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken, clear_compiled, mark_slow

from factmem.dynamics import LinearAttention
from factmem.facts import FactTable
from factmem.paper import theorem_6 as claims


def start_larger(monkeypatch):
    original = LinearAttention.balanced
    monkeypatch.setattr(
        LinearAttention, "balanced", lambda tokens, answers, scale: original(tokens, answers, 0.1)
    )


def transpose_tables(monkeypatch):
    original = FactTable.structured
    monkeypatch.setattr(FactTable, "structured", lambda s, r, answers: original(r, s, answers))


BROKEN = {
    "theorem-6": (lambda: claims.theorem_6([0]), start_larger),
    "without-many-subjects": (
        lambda: claims.without_many_subjects([0], ((32, 2), (8, 8), (2, 16))),
        transpose_tables,
    ),
}


@pytest.mark.parametrize("name", mark_slow(BROKEN, ("without-many-subjects",)))
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    try:
        assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)
    finally:
        clear_compiled()
