"""Claims of Theorem 2: they hold at small sizes, and fail when the code is broken."""

import equinox as eqx
import jax.numpy as jnp
import pytest
from tests.paper.claim_checks import (
    assert_holds_and_fails_when_broken,
    change_result,
    clear_compiled,
)

from factmem.memories import TangentMemory
from factmem.paper import theorem_2 as claims


def flip_half_of_the_signs(tangent):
    signs = jnp.where(jnp.arange(tangent.out.shape[0]) % 2 == 0, 1.0, -1.0)
    return eqx.tree_at(lambda m: m.displacement, tangent, signs[:, None] * tangent.displacement)


def make_nonlinear(monkeypatch):
    original = TangentMemory.__call__

    def squared(self, key):
        value = original(self, key)
        return value * jnp.abs(value)

    monkeypatch.setattr(TangentMemory, "__call__", squared)
    clear_compiled()


BROKEN = {
    "theorem-2": (
        lambda: claims.theorem_2([0, 1], widths=(128, 256)),
        change_result("hermite_memory", lambda m: eqx.tree_at(lambda x: x.out, m, 2 * m.out)),
    ),
    "tangents-learned": (
        lambda: claims.tangents_are_learned([0], 16, 24, 4, 64, steps=300),
        make_nonlinear,
    ),
    "tangents-share-answers": (
        lambda: claims.features_against_tangents([0, 1], 32, 250, 250),
        change_result("tangent_memory", flip_half_of_the_signs),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)
    if name == "tangents-learned":
        clear_compiled()
