"""The sum of outer products, of full rank and of low rank."""

from typing import Any

from factmem.experiments.memory_methods import BuiltMemory, register_memory_method

__all__ = ["hebbian", "low_rank"]


@register_memory_method("hebbian", summary="Theorem 1: sum of outer products, d² weights", order=1)
def hebbian(associations: Any, *, key: Any, report: Any) -> BuiltMemory:
    """Sum the outer products of answers and keys."""
    from factmem import memories

    return BuiltMemory(model=memories.hebbian(associations))


@register_memory_method("low-rank", summary="Theorem 1 with rank m, 2·m·d weights", order=2)
def low_rank(associations: Any, *, rank: int, key: Any, report: Any) -> BuiltMemory:
    """Project the sum of outer products to rank m."""
    from factmem import memories

    model = memories.low_rank(associations, rank, key=key)
    return BuiltMemory(model=model, details={"rank": rank})
