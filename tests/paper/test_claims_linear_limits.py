"""Claims on the limits of linear memories: they hold at small sizes, and fail when broken."""

import math
from dataclasses import replace

import jax.numpy as jnp
import pytest
from tests.paper.here import (
    by_information,
    checked,
    everything,
    holds_then_fails,
    nightly,
    nothing,
    searched,
    told,
    without_logarithm,
    wrapped,
)

from factmem import memories
from factmem.experiments import Store
from factmem.memories import LinearMemory
from factmem.paper import Verdict
from factmem.paper import claims_linear_limits as claims


def transposed(memory):
    return LinearMemory(memory.matrix.T)


def nothing_found(built):
    zero = jnp.zeros_like(built.memory.matrix)
    return replace(built, memory=LinearMemory(zero), verdict=memories.Verdict.INFEASIBLE)


def best_matrix(*, dim, facts, seed, **_):
    """N ln N = d² (1/2 + 2/ln N), or a little more with another seed."""
    logarithm = math.log(facts + 1)
    return {"stored": facts * logarithm <= (1 + seed / 50) * dim**2 * (0.5 + 2 / logarithm)}


# For each claim: itself at a small size, and what breaks its implementation.
BROKEN = {
    "exact-matching": (
        lambda: claims.exact_matching([0], dims=(6, 12, 24), exact_dims=(8, 16)),
        wrapped("least_squares", transposed),
    ),
    "linear-limit": (
        lambda: claims.limit_of_linear_memories([0, 1], at_length=(500,)),
        wrapped("maximal", nothing_found),
    ),
}


@pytest.mark.parametrize("name", nightly(BROKEN, ("linear-limit",)))
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    if name == "exact-matching":  # what is broken is not what is searched for
        searched(monkeypatch, by_information)
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (best_matrix, Verdict.HOLDS),
        (by_information, Verdict.FAILS),
        (without_logarithm, Verdict.FAILS),
        (everything, Verdict.FAILS),
        (nothing, Verdict.FAILS),
    ],
)
def test_what_searches_say(monkeypatch, tmp_path, function, verdict):
    searched(monkeypatch, function)
    with Store(tmp_path / "runs.sqlite") as store:
        found = checked(claims.limit_of_linear_memories([0, 1]), store)
    assert found.finding.verdict is verdict, told(found)
