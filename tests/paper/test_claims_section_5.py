"""Claims on dynamics: they hold at small sizes, and fail when what they check is broken."""

import jax.numpy as jnp
import pytest
from tests.paper.here import forget_compiled, holds_then_fails, nightly

from factmem import dynamics
from factmem.dynamics import LinearAttention, flow
from factmem.experiments import flow_measures as maps
from factmem.facts import FactTable
from factmem.paper import claims_section_5 as claims


def velocity(of_keys):
    """Gradient flow in which W_KQ(z)' has another factor."""

    def breaks(monkeypatch):
        def broken(t, y, questions):
            errors = questions.errors(y.products)
            keys = of_keys * jnp.sum(y.ov * errors, axis=1)
            return LinearAttention(y.kq[:, None] * errors, keys)

        monkeypatch.setattr(flow, "_velocity", broken)
        forget_compiled()

    return breaks


def larger_start(monkeypatch):
    right = LinearAttention.balanced
    monkeypatch.setattr(
        LinearAttention, "balanced", lambda tokens, answers, scale: right(tokens, answers, 0.1)
    )


def doubled_rates(monkeypatch):
    right = dynamics.escape_rates

    def broken(questions):
        found = right(questions)
        return found._replace(relations=2 * found.relations)

    monkeypatch.setattr(dynamics, "escape_rates", broken)


class Transposed(FactTable):
    @classmethod
    def structured(cls, subjects, relations, answers):
        return FactTable.structured(relations, subjects, answers)


def hardly_any_rate(monkeypatch):
    right = maps.FlowSpec.softmax_descent
    monkeypatch.setattr(
        maps.FlowSpec,
        "softmax_descent",
        lambda self, *, dim, rate, steps: right(self, dim=dim, rate=rate / 1e6, steps=steps),
    )


# For each claim: itself at a small size, and what breaks its implementation.
BROKEN = {
    "invariant": (lambda: claims.invariant([0], (4, 2, 2)), velocity(2.0)),
    "theorem-5": (lambda: claims.convergence([0], (4, 2, 2), (1e3, 1e4)), velocity(-1.0)),
    "theorem-6": (lambda: claims.sequential_learning([0]), larger_start),
    "plateau": (lambda: claims.plateau([0]), doubled_rates),
    "softmax-stages": (lambda: claims.softmax_stages([0]), hardly_any_rate),
    "without-many-subjects": (
        lambda: claims.without_many_subjects([0], ((32, 2), (8, 8), (2, 16))),
        lambda monkeypatch: monkeypatch.setattr(maps, "FactTable", Transposed),
    ),
}
SLOW = ("softmax-stages", "without-many-subjects")


@pytest.mark.parametrize("name", nightly(BROKEN, SLOW))
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    try:
        holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)
    finally:
        forget_compiled()
