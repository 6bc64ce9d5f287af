"""The claim on quantization: it holds at a small size, and fails when the code is broken."""

from tests.paper.claim_checks import assert_holds_and_fails_when_broken

from factmem import memories
from factmem.paper import section_3_precision as claims


def round_coarsely(monkeypatch):
    original = memories.rounded_to_multiples
    monkeypatch.setattr(memories, "rounded_to_multiples", lambda m, step: original(m, step * 400))


BROKEN = {"quantization": (lambda: claims.quantization([0], dims=(96,)), round_coarsely)}


def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path):
    assert_holds_and_fails_when_broken(*BROKEN["quantization"], monkeypatch, tmp_path)
