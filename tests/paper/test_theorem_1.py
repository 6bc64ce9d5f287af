"""Claims of Theorem 1: they hold at small sizes, and fail when the code is broken."""

from dataclasses import replace

import equinox as eqx
import pytest
from tests.paper.claim_checks import assert_holds_and_fails_when_broken, change_result

from factmem.memories import LinearMemory
from factmem.paper import theorem_1 as claims


def transpose(memory):
    return LinearMemory(memory.matrix.T)


def remove_scale(memory):
    return eqx.tree_at(lambda m: m.left, memory, memory.left * memory.left.shape[1])


def negate(result):
    negative = eqx.tree_at(lambda m: m.matrix, result.model, -result.model.matrix)
    return replace(result, model=negative)


BROKEN = {
    "theorem-1a": (
        lambda: claims.theorem_1a([0, 1], dims=(48, 96)),
        change_result("hebbian", transpose),
    ),
    "theorem-1b": (
        lambda: claims.theorem_1b([0, 1], ranks=(16,), dims=(64, 128)),
        change_result("low_rank", remove_scale),
    ),
    "orthonormal": (
        lambda: claims.orthonormal_embeddings([0], 16, 40),
        change_result("hebbian", transpose),
    ),
    "shared-answers": (
        lambda: claims.shared_answers([0], 24),
        change_result("optimal_linear_memory", negate),
    ),
    "one-gradient-step": (
        lambda: claims.one_gradient_step([0], 16, 24, 4),
        change_result("correlation_loss", lambda loss: -loss),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_claim_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    assert_holds_and_fails_when_broken(*BROKEN[name], monkeypatch, tmp_path)
