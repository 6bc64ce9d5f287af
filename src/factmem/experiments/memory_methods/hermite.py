"""Theorem 2: random features, and the tangent construction."""

from typing import Any

from factmem.experiments.memory_methods import BuiltMemory, register_memory_method

__all__ = ["hermite", "tangent"]


@register_memory_method(
    "hermite",
    summary="Theorem 2: random features with a Hermite polynomial readout",
    order=3,
)
def hermite(
    associations: Any, *, width: int, degree: int = 2, key: Any, report: Any
) -> BuiltMemory:
    """Build an MLP of random features."""
    from factmem import memories

    model = memories.hermite_memory(associations, width, degree, key=key)
    return BuiltMemory(model=model, details={"width": width, "degree": degree})


@register_memory_method(
    "tangent",
    summary="Theorem 2: tangent construction as an MLP of paired neurons",
    order=4,
)
def tangent(
    associations: Any, *, width: int, degree: int = 2, key: Any, report: Any
) -> BuiltMemory:
    """Build the tangent memory as an MLP; `width` counts pairs of neurons."""
    from factmem import memories

    linear_in_displacements = memories.tangent_memory(associations, width, degree, key=key)
    return BuiltMemory(
        model=memories.paired_neurons(linear_in_displacements),
        details={"width": width, "neurons": 2 * width, "degree": degree},
    )
