"""Memories trained by the paper's protocol."""

from typing import Any

from factmem.experiments.memory_methods import BuiltMemory, register_memory_method
from factmem.training import LINEAR_PROTOCOL, MLP_PROTOCOL, MemoryProtocol

__all__ = ["trained_linear", "trained_mlp"]


@register_memory_method(
    "trained-linear",
    summary="matrix trained by the paper's protocol",
    max_steps=LINEAR_PROTOCOL.steps,
    order=9,
)
def trained_linear(
    associations: Any, *, protocol: MemoryProtocol = LINEAR_PROTOCOL, key: Any, report: Any
) -> BuiltMemory:
    """Train a matrix from a random start."""
    from factmem.training import init_linear_memory

    return _train(init_linear_memory(associations.dim, key=key), associations, protocol, report)


@register_memory_method(
    "trained-mlp",
    summary="ReLU MLP trained by the paper's protocol",
    max_steps=MLP_PROTOCOL.steps,
    order=10,
)
def trained_mlp(
    associations: Any,
    *,
    width: int,
    protocol: MemoryProtocol = MLP_PROTOCOL,
    key: Any,
    report: Any,
) -> BuiltMemory:
    """Train a ReLU MLP from a random start."""
    from factmem.training import init_mlp_memory

    start = init_mlp_memory(associations.dim, width, key=key)
    result = _train(start, associations, protocol, report=report)
    details = {"width": width, **result.details}
    return BuiltMemory(model=result.model, status=result.status, details=details)


def _train(start: Any, associations: Any, protocol: MemoryProtocol, report: Any) -> BuiltMemory:
    from factmem.training import train_memories

    (run,) = train_memories([start], [associations], protocol, report=report)
    details = {
        "learning_rate": protocol.learning_rate,
        "best_accuracy": run.best_accuracy,
        "loss": run.loss,
        "steps": run.steps,
    }
    return BuiltMemory(model=run.model, status=run.status, details=details)
