"""Claims on optimal linear memories: they hold at small sizes, and fail when broken."""

import math
from dataclasses import replace

import jax.numpy as jnp
import pytest
from tests.paper.claim_checks import (
    assert_holds_and_fails_when_broken,
    change_result,
    check,
    everything,
    evidence,
    mark_slow,
    nothing,
    one_bit_per_weight,
    proportional_to_weights,
    replace_memory_measurement,
)

from factmem import memories
from factmem.experiments import Store
from factmem.memories import LinearMemory
from factmem.paper import Verdict
from factmem.paper import section_3_linear_limit as claims


def transpose(memory):
    return LinearMemory(memory.matrix.T)


def find_nothing(result):
    zero = LinearMemory(jnp.zeros_like(result.model.matrix))
    return replace(result, model=zero, feasibility=memories.Feasibility.INFEASIBLE)


def optimal_matrix(*, dim, facts, seed, **_):
    """Store N ln N = d² (1/2 + 2/ln N), a little more with larger seeds."""
    logarithm = math.log(facts + 1)
    return {"stored": facts * logarithm <= (1 + seed / 50) * dim**2 * (0.5 + 2 / logarithm)}


BROKEN = {
    "exact-matching": (
        lambda: claims.exact_matching([0], dims=(6, 12, 24), exact_dims=(8, 16)),
        change_result("least_squares", transpose),
    ),
    "linear-limit": (
        lambda: claims.linear_limit([0, 1], paper_dims=(500,)),
        change_result("optimal_linear_memory", find_nothing),
    ),
}


@pytest.mark.parametrize("name", mark_slow(BROKEN, ("linear-limit",)))
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    if name == "exact-matching":  # least squares is broken, not the capacity search
        replace_memory_measurement(monkeypatch, one_bit_per_weight)
    assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (optimal_matrix, Verdict.HOLDS),
        (one_bit_per_weight, Verdict.FAILS),
        (proportional_to_weights, Verdict.FAILS),
        (everything, Verdict.FAILS),
        (nothing, Verdict.FAILS),
    ],
)
def test_verdict_follows_from_the_searches(monkeypatch, tmp_path, function, verdict):
    replace_memory_measurement(monkeypatch, function)
    with Store(tmp_path / "runs.sqlite") as store:
        checked = check(claims.linear_limit([0, 1]), store)
    assert checked.finding.verdict is verdict, evidence(checked)
