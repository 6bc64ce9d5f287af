"""MLPs that are fitted to their associations by L-BFGS."""

from typing import Any

from factmem.experiments.memory_methods import BuiltMemory, register_memory_method

__all__ = ["fitted_bilinear", "fitted_features", "fitted_relu"]


@register_memory_method(
    "fitted-features", summary="random ReLU features with the best readout", order=6
)
def fitted_features(associations: Any, *, width: int, key: Any, report: Any) -> BuiltMemory:
    """Fit the readout of random ReLU features."""
    return _fit("fitted_features", associations, width, key, report)


@register_memory_method("fitted-relu", summary="ReLU MLP with all weights fitted", order=7)
def fitted_relu(associations: Any, *, width: int, key: Any, report: Any) -> BuiltMemory:
    """Fit all weights of a ReLU MLP."""
    return _fit("fitted_relu", associations, width, key, report)


@register_memory_method("fitted-bilinear", summary="bilinear MLP with all weights fitted", order=8)
def fitted_bilinear(associations: Any, *, width: int, key: Any, report: Any) -> BuiltMemory:
    """Fit all weights of a bilinear MLP."""
    return _fit("fitted_bilinear", associations, width, key, report)


def _fit(name: str, associations: Any, width: int, key: Any, report: Any) -> BuiltMemory:
    from factmem import memories

    fit = getattr(memories, name)(associations, width, key=key, report=report)
    return BuiltMemory(model=fit.model, status=fit.status, details={"width": width, **fit.metrics})
