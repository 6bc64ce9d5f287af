"""Claims on MLP memories: they hold at small sizes, and fail when what they check is broken."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import pytest
from tests.paper.here import (
    by_information,
    checked,
    everything,
    forget_compiled,
    holds_then_fails,
    nightly,
    nothing,
    searched,
    told,
    without_logarithm,
    wrapped,
)

from factmem.experiments import Store
from factmem.memories import TangentMemory
from factmem.paper import Verdict
from factmem.paper import claims_mlp_memories as claims


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


# For each claim: itself at a small size, and what breaks its implementation.
BROKEN = {
    "theorem-2": (
        lambda: claims.theorem_2([0, 1], widths=(128, 256)),
        wrapped("hermite_memory", lambda m: eqx.tree_at(lambda x: x.out, m, 2 * m.out)),
    ),
    "tangents-learned": (
        lambda: claims.tangents_are_learned([0], 16, 24, 4, 64, steps=300),
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
}


@pytest.mark.parametrize("name", nightly(BROKEN, ("few-outputs",)))
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)
    if name == "tangents-learned":
        forget_compiled()


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (by_information, Verdict.HOLDS),
        (without_logarithm, Verdict.FAILS),
        (everything, Verdict.FAILS),
        (nothing, Verdict.FAILS),
    ],
)
def test_what_searches_say(monkeypatch, tmp_path, function, verdict):
    searched(monkeypatch, function)
    with Store(tmp_path / "runs.sqlite") as store:
        found = checked(claims.few_outputs([0, 1]), store)
    assert found.finding.verdict is verdict, told(found)
