"""The claim of Theorem 8: it holds at small sizes, and fails when the code is broken."""

from tests.paper.claim_checks import assert_holds_and_fails_when_broken

from factmem import bounds
from factmem.bounds import TableBits
from factmem.paper.theorem_8 import theorem_8


def ignore_unseen_answers(monkeypatch):
    original = bounds.random_table_bits

    def broken(*sizes):
        bits = original(*sizes)
        return TableBits(bits.association_bits, bits.answer_set_bits, 0.0)

    monkeypatch.setattr(bounds, "random_table_bits", broken)


BROKEN = {
    "theorem-8": (lambda: theorem_8([0], [(4, 1, 2, 5), (2, 2, 2, 5)]), ignore_unseen_answers)
}


def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path):
    assert_holds_and_fails_when_broken(*BROKEN["theorem-8"], monkeypatch, tmp_path)
