"""Suggested shapes fit their tables, and costs are estimated before work begins."""

from types import SimpleNamespace

import jax.random as jr
import pytest

from factmem._core.errors import FactmemError
from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import Embeddings, Shape, compile_facts
from factmem.transformer.compiler.cost import compile_cost
from factmem.transformer.compiler.shapes import default_dim, default_heads, suggest_shape


def prompts_of(subjects, relations, answers=8, noise=64):
    return PromptDistribution.from_table(
        FactTable.random(subjects, relations, answers), noise=noise
    )


@pytest.mark.parametrize("subjects", [10, 44, 45, 200, 1000, 20_000])
def test_suggested_shape_has_the_parameters_of_its_load(subjects):
    prompts = prompts_of(subjects, 10 if subjects > 44 else subjects)
    shape = suggest_shape(prompts)
    bits = prompts.table.association_bits
    assert shape.head_dim == 1
    assert shape.heads >= 4
    assert shape.width > 0
    attention = 4 * shape.heads * shape.dim
    assert bits / shape.parameters <= 0.61
    assert bits / shape.parameters >= 0.4 or shape.parameters <= 1.3 * attention
    if subjects > 44:
        assert suggest_shape(prompts, 0.3).parameters >= shape.parameters


def test_large_tables_have_d_heads_and_dimensions_in_steps_of_8():
    prompts = prompts_of(965, 10)
    assert default_dim(prompts) == 64
    assert default_heads(prompts, 64) == 64
    assert default_dim(prompts_of(30, 30)) == 17


def test_cost_grows_with_each_size():
    small = compile_cost(prompts_of(300, 10), Shape(32, 32, 1, 100))
    for prompts, shape in (
        (prompts_of(3000, 10), Shape(32, 32, 1, 100)),
        (prompts_of(300, 10, answers=100), Shape(32, 32, 1, 100)),
        (prompts_of(300, 10), Shape(32, 32, 1, 1000)),
    ):
        cost = compile_cost(prompts, shape)
        assert cost.seconds > small.seconds
        assert cost.peak_bytes > small.peak_bytes
    longer = compile_cost(prompts_of(300, 10, noise=10_000), Shape(32, 32, 1, 100))
    # 24 bytes a number for d and for each head, 8 for each of the 5 tables of scores.
    assert longer.peak_bytes - small.peak_bytes == 8 * (10_000 - 64) * (2 * 32 + 9 * 32)
    wider = compile_cost(prompts_of(300, 10), Shape(32, 32, 1, 200))
    repair = 12 * (200**2 - 100**2) + 32_000 * 100
    assert wider.peak_bytes - small.peak_bytes == 56 * 2 * 32 * 100 + repair
    # Beyond 12,000 units nothing is repaired.
    widest = [compile_cost(prompts_of(300, 10), Shape(32, 32, 1, m)) for m in (12_000, 12_001)]
    assert widest[0].peak_bytes > widest[1].peak_bytes


def test_what_does_not_fit_into_memory_is_refused_before_work_begins(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**6))
    prompts = prompts_of(8, 8)
    phi = Embeddings.draw(12, prompts.vocabulary, key=jr.key(0))
    with pytest.raises(FactmemError, match=r"needs about 0\.8 GB of memory .* only 0\.0 GB are"):
        compile_facts(prompts, phi, Shape(12, 8, 1, 16), key=jr.key(1))
