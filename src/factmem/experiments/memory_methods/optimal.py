"""The optimal linear memory, with a proof."""

from typing import Any

from factmem.experiments.memory_methods import BuiltMemory, register_memory_method

__all__ = ["optimal"]


@register_memory_method(
    "optimal",
    summary="optimal linear memory, with a proof that storage is or is not possible",
    max_steps=20_000,
    order=5,
)
def optimal(associations: Any, *, key: Any, report: Any) -> BuiltMemory:
    """Find the best matrix, or prove that no matrix stores all associations."""
    from factmem import memories

    result = memories.optimal_linear_memory(associations, report=report)
    return BuiltMemory(model=result.model, status=result.status, details=result.metrics)
