"""Claims on bounds: they hold at small sizes, and fail when what they check is broken."""

import pytest
from tests.paper.here import checked, holds_then_fails, told

from factmem import bounds
from factmem.bounds import TableBits, Zipf
from factmem.experiments import Experiment, LinearCapacityProblem, MLPCapacityProblem, Store
from factmem.experiments import memory_capacity as questions
from factmem.paper import claims_section_6 as claims
from factmem.paper.claim import Verdict


def in_nats(monkeypatch):
    right = bounds.least_loss
    monkeypatch.setattr(bounds, "least_loss", lambda *a: right(*a) * 0.6931)


def flatter(monkeypatch):
    right = Zipf.tail
    monkeypatch.setattr(Zipf, "tail", lambda self, known: right(self, known) ** 0.5)


def nothing_unseen(monkeypatch):
    right = bounds.random_table_bits

    def broken(*sizes):
        found = right(*sizes)
        return TableBits(found.association_bits, found.answer_set_bits, 0.0)

    monkeypatch.setattr(bounds, "random_table_bits", broken)


def root_of_weights(question):
    return (question.dim * getattr(question, "width", question.dim)) ** 0.5


def store_some(*, dim, width, facts, **_):
    """In proportion to what there is of weights."""
    return {"stored": facts <= 0.75 * dim * (width or dim)}


@pytest.fixture(autouse=True)
def quick_searches(monkeypatch):
    """CapacitySearches for what memories store are tested with their own claims."""
    measure = Experiment("some", 1, store_some)
    monkeypatch.setattr(questions, "MEASURE", measure)


# For each claim: itself at a small size, and what breaks its implementation.
BROKEN = {
    "theorem-7": (lambda: claims.theorem_7([0, 1], 3, 4), in_nats),
    "scaling-law": (lambda: claims.scaling_law([0], (1.5, 2.0)), flatter),
    "bound-met": (lambda: claims.bound_is_met([0]), flatter),
    "theorem-8": (lambda: claims.theorem_8([0], [(4, 1, 2, 5), (2, 2, 2, 5)]), nothing_unseen),
    "cubic-capacity": (lambda: claims.cubic_capacity([0, 1]), None),
}


@pytest.mark.parametrize("name", [name for name in BROKEN if BROKEN[name][1]])
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)


def test_the_misreading_fails_unless_parameters_and_bits_are_miscounted(monkeypatch, tmp_path):
    make, _ = BROKEN["cubic-capacity"]
    with Store(tmp_path / "runs.sqlite") as store:
        intact = checked(make(), store)
        assert intact.finding.verdict is Verdict.FAILS, told(intact)
        assert intact.as_expected
        monkeypatch.setattr(bounds, "bits_for_loss", lambda *_: 1.0)
        assert checked(make(), store).finding.verdict is Verdict.FAILS
        for question in (LinearCapacityProblem, MLPCapacityProblem):
            monkeypatch.setattr(question, "parameters", property(root_of_weights))
        broken = checked(make(), store)
    assert broken.finding.verdict is Verdict.HOLDS, told(broken)
    assert not broken.as_expected
