"""The list of claims as a whole."""

from pathlib import Path

import pytest
from tests.paper import (
    test_claims_linear_limits,
    test_claims_linear_memories,
    test_claims_mlp_memories,
    test_claims_section_4,
    test_claims_section_5,
    test_claims_section_6,
    test_claims_trained,
)

from factmem._core.errors import FactmemError
from factmem.paper import all_claims, claim_named


def test_every_claim_is_told_in_full():
    claims = all_claims(5)
    assert len({claim.id for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.id == claim.id.lower().replace(" ", "-")
        assert claim.claim.endswith(".")
        assert claim.method.endswith(".")
        assert claim.place
        tasks = claim.measured.pending({}).needed
        assert {task.seed for task in tasks} <= {5, 6, 7}
        assert tasks


def test_only_the_misreading_should_fail():
    assert [claim.id for claim in all_claims() if claim.refuted] == ["cubic-capacity"]


def test_every_claim_has_a_test_that_breaks_it():
    modules = (
        test_claims_section_6,
        test_claims_section_4,
        test_claims_section_5,
        test_claims_linear_limits,
        test_claims_linear_memories,
        test_claims_mlp_memories,
        test_claims_trained,
    )
    broken = {name for module in modules for name in module.BROKEN}
    assert broken == {claim.id for claim in all_claims()}


def test_names():
    assert claim_named("theorem-8").id == "theorem-8"
    with pytest.raises(FactmemError, match=r"no claim 'theorem-9'; there are theorem-1a"):
        claim_named("theorem-9")


def test_the_page_has_the_list_as_it_is():
    page = (Path(__file__).parents[2] / "docs" / "claims.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `{}` | {} ({}) | {} |".format(
            *(text.replace("|", "\\|") for text in (each.id, each.claim, each.place, each.method))
        )
        for each in all_claims()
    ]
