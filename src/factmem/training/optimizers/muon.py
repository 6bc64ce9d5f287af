"""Muon for matrices, Adam for the bias."""

import operator
from typing import Any

from factmem.training.optimizers import register_optimizer
from factmem.training.protocol import BEST

__all__ = ["muon"]

_NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315),) * 5
"""Jordan's coefficients, repeated for each iteration: then optax loops over the iterations. Given
once, it unrolls them, and compilation takes twice as long."""

_SCORE_RATE, _BIAS_RATE = 0.3, 0.1
"""Relative to the learning rate. A score is a product of query and key, and a step moves both."""

_SCORE_MATRICES = ("query", "key")
"""One matrix over all heads; values and outputs are one matrix per head. This stored more facts
than one choice for all four (docs/training.md)."""

_MATRICES = (*_SCORE_MATRICES, "value", "output", "mlp_in", "mlp_out")


@register_optimizer(
    "muon", summary="Muon, which stores more facts in the same time", protocol=BEST, order=2
)
def muon(hyperparameters: Any) -> Any:
    """Build Muon for matrices and Adam for the bias."""
    import optax

    adam = optax.scale_by_adam(b1=hyperparameters.momentum, b2=hyperparameters.beta2)
    bias_adam = optax.chain(adam, optax.scale(_BIAS_RATE))
    return optax.partition({"muon": _muon(hyperparameters), "adam": bias_adam}, _optimizer_labels)


def _muon(hyperparameters: Any) -> Any:
    """Momentum, with each matrix replaced by (nearly) the nearest orthogonal one."""
    import optax
    from optax.contrib import MuonDimensionNumbers, scale_by_muon

    axes = {"mlp_in": MuonDimensionNumbers(0, 1), "mlp_out": MuonDimensionNumbers(0, 1)}
    axes |= dict.fromkeys(("value", "output"), MuonDimensionNumbers(1, 2))
    axes |= dict.fromkeys(_SCORE_MATRICES, MuonDimensionNumbers((0, 1), 2))
    matrices = scale_by_muon(
        _NEWTON_SCHULZ,
        ns_steps=len(_NEWTON_SCHULZ),
        beta=hyperparameters.momentum,
        weight_dimension_numbers=lambda weights: _tree_of(weights, axes),
    )
    rates = {name: _SCORE_RATE if name in _SCORE_MATRICES else 1.0 for name in _MATRICES}
    return optax.chain(matrices, _scale_by_name(rates))


def _scale_by_name(rates: dict[str, float]) -> Any:
    import jax
    import optax

    return optax.stateless(
        lambda updates, _: jax.tree.map(operator.mul, updates, _tree_of(updates, rates))
    )


def _tree_of(weights: Any, entries: dict[str, Any]) -> Any:
    """Return a tree like `weights` that holds the entry of each matrix's name."""
    import jax

    return jax.tree_util.tree_map_with_path(lambda path, _: entries[path[-1].name], weights)


def _optimizer_labels(weights: Any) -> Any:
    """Label matrices for Muon and the bias for Adam."""
    import jax

    return jax.tree.map(lambda weight: "muon" if weight.ndim > 1 else "adam", weights)
