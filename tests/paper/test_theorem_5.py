"""Claims of Theorem 5: they hold at small sizes, and fail when the code is broken."""

import jax.numpy as jnp
import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken, clear_compiled

from factmem.dynamics import LinearAttention, flow
from factmem.paper import theorem_5 as claims


def scale_key_velocity(factor):
    """Return a function that multiplies the velocity of W_KQ."""

    def break_code(monkeypatch):
        def broken(t, y, prompts):
            errors = prompts.errors(y.products)
            keys = factor * jnp.sum(y.ov * errors, axis=1)
            return LinearAttention(y.kq[:, None] * errors, keys)

        monkeypatch.setattr(flow, "_velocity", broken)
        clear_compiled()

    return break_code


BROKEN = {
    "invariant": (lambda: claims.invariant([0], (4, 2, 2)), scale_key_velocity(2.0)),
    "theorem-5": (
        lambda: claims.theorem_5([0], (4, 2, 2), (1e3, 1e4)),
        scale_key_velocity(-1.0),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    try:
        assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)
    finally:
        clear_compiled()
