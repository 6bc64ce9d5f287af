"""Claims on linear memories: they hold at small sizes, and fail when what they check is broken."""

from dataclasses import replace

import equinox as eqx
import pytest
from tests.paper.here import holds_then_fails, wrapped

from factmem import memories
from factmem.memories import LinearMemory
from factmem.paper import claims_linear_memories as claims


def transposed(memory):
    return LinearMemory(memory.matrix.T)


def without_scale(memory):
    return eqx.tree_at(lambda m: m.left, memory, memory.left * memory.left.shape[1])


def negated(built):
    def negative(memory):
        return eqx.tree_at(lambda m: m.matrix, memory, -memory.matrix)

    return replace(built, memory=negative(built.memory))


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
    "shared-answers": (lambda: claims.shared_answers([0], 24), wrapped("maximal", negated)),
    "one-gradient-step": (
        lambda: claims.one_gradient_step([0], 16, 24, 4),
        wrapped("correlation_loss", lambda loss: -loss),
    ),
    "quantization": (lambda: claims.quantization([0], dims=(96,)), coarser),
}


@pytest.mark.parametrize("name", BROKEN)
def test_it_holds_and_fails_when_broken(monkeypatch, tmp_path, name):
    holds_then_fails(*BROKEN[name], monkeypatch, tmp_path)
