"""Claims on memories: they hold at small sizes, and fail when what they check is broken."""

import math
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import pytest
from tests.claims.here import checked, forget_compiled, holds_then_fails, nightly, told

from factmem import memories
from factmem.capacity import memories as questions
from factmem.claims import memories as claims
from factmem.claims.claim import Verdict
from factmem.memories import LinearMemory, TangentMemory
from factmem.runs import Measure, Store


def transposed(memory):
    return LinearMemory(memory.matrix.T)


def without_scale(memory):
    return eqx.tree_at(lambda m: m.left, memory, memory.left * memory.left.shape[1])


def wrapped(name, change):
    """A function of `memories` whose result is changed."""

    def breaks(monkeypatch):
        right = getattr(memories, name)
        monkeypatch.setattr(memories, name, lambda *a, **k: change(right(*a, **k)))

    return breaks


def negated(built):
    def negative(memory):
        return eqx.tree_at(lambda m: m.matrix, memory, -memory.matrix)

    return replace(built, memory=negative(built.memory))


def nothing_found(built):
    zero = jnp.zeros_like(built.memory.matrix)
    return replace(built, memory=LinearMemory(zero), verdict=memories.Verdict.INFEASIBLE)


def wrong_sign(fit):
    return replace(fit, memory=eqx.tree_at(lambda m: m.out, fit.memory, -fit.memory.out))


def random_signs(tangent):
    signs = jnp.where(jnp.arange(tangent.out.shape[0]) % 2 == 0, 1.0, -1.0)
    return eqx.tree_at(lambda m: m.displacement, tangent, signs[:, None] * tangent.displacement)


def not_linear(monkeypatch):
    right = TangentMemory.__call__

    def squared(self, key):
        value = right(self, key)
        return value * jnp.abs(value)

    monkeypatch.setattr(TangentMemory, "__call__", squared)
    forget_compiled()


def coarser(monkeypatch):
    right = memories.rounded_to_multiples
    monkeypatch.setattr(memories, "rounded_to_multiples", lambda m, step: right(m, step * 400))


# For each claim: itself at a small size, and what breaks its implementation.
BROKEN = {
    "theorem-1a": (
        lambda: claims.theorem_1a([0, 1], dims=(48, 96)),
        wrapped("hebbian", transposed),
    ),
    "theorem-1b": (
        lambda: claims.theorem_1b([0, 1], ranks=(16,), dims=(64, 128)),
        wrapped("low_rank", without_scale),
    ),
    "orthonormal": (
        lambda: claims.orthonormal_embeddings([0], 16, 40),
        wrapped("hebbian", transposed),
    ),
    "exact-matching": (
        lambda: claims.exact_matching([0], dims=(6, 12, 24), exact_dims=(8, 16)),
        wrapped("least_squares", transposed),
    ),
    "shared-answers": (lambda: claims.shared_answers([0], 24), wrapped("maximal", negated)),
    "one-gradient-step": (
        lambda: claims.one_gradient_step([0], 16, 24, 4),
        wrapped("correlation_loss", lambda loss: -loss),
    ),
    "linear-limit": (
        lambda: claims.limit_of_linear_memories([0], dims=(6, 12, 24), at_length=(500,)),
        wrapped("maximal", nothing_found),
    ),
    "theorem-2": (
        lambda: claims.theorem_2([0, 1], widths=(128, 256)),
        wrapped("hermite_memory", lambda m: eqx.tree_at(lambda x: x.out, m, 2 * m.out)),
    ),
    "tangents-learnt": (
        lambda: claims.tangents_are_learnt([0], 16, 24, 4, 64, steps=300),
        not_linear,
    ),
    "tangents-share-answers": (
        lambda: claims.features_against_tangents([0, 1], 32, 250, 250),
        wrapped("tangent_memory", random_signs),
    ),
    "few-outputs": (
        lambda: claims.few_outputs([0, 1], 6, (12, 48), 6),
        wrapped("fitted_relu", wrong_sign),
    ),
    "quantisation": (lambda: claims.quantisation([0], dims=(96,)), coarser),
}


# Searches take minutes: these are nightly tests. What is judged is tested below.
SLOW = ("linear-limit", "few-outputs")


@pytest.mark.parametrize("name", nightly(BROKEN, SLOW))
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    if name == "exact-matching":  # what is broken is not what is searched for
        searched(monkeypatch, by_information)
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)
    if name == "tangents-learnt":
        forget_compiled()


def by_information(*, dim, width, outputs, facts, seed, **_):
    """Stored is what has a bit for each weight, or a little more with another seed."""
    weights = dim * (width or dim)
    return {"stored": facts * math.log2(outputs) <= 1.4 * (1 + seed / 50) * weights}


def best_matrix(*, dim, facts, seed, **_):
    """N ln N = d² (1/2 + 2/ln N), or a little more with another seed."""
    logarithm = math.log(facts + 1)
    return {"stored": facts * logarithm <= (1 + seed / 50) * dim**2 * (0.5 + 2 / logarithm)}


def without_logarithm(*, dim, width, facts, seed, **_):
    return {"stored": facts <= (1 + seed / 50) * dim * (width or dim) / 2}


def everything(**_):
    return {"stored": True}


def nothing(**_):
    return {"stored": False}


def searched(monkeypatch, function):
    monkeypatch.setattr(questions, "MEASURE", Measure(function.__name__, 1, function))


@pytest.mark.parametrize(
    ("make", "function", "verdict"),
    [
        (claims.limit_of_linear_memories, best_matrix, Verdict.HOLDS),
        (claims.limit_of_linear_memories, by_information, Verdict.FAILS),
        (claims.limit_of_linear_memories, without_logarithm, Verdict.FAILS),
        (claims.limit_of_linear_memories, everything, Verdict.FAILS),
        (claims.limit_of_linear_memories, nothing, Verdict.FAILS),
        (claims.few_outputs, by_information, Verdict.HOLDS),
        (claims.few_outputs, without_logarithm, Verdict.FAILS),
        (claims.few_outputs, everything, Verdict.FAILS),
        (claims.few_outputs, nothing, Verdict.FAILS),
    ],
)
def test_what_searches_say(monkeypatch, tmp_path, make, function, verdict):
    searched(monkeypatch, function)
    with Store(tmp_path / "runs.sqlite") as store:
        found = checked(make([0, 1]), store)
    assert found.finding.verdict is verdict, told(found)
