"""Optimizers (Adam, as in the paper, and Muon) and learning rate schedules.

Only the kinds of optimizer and schedule are compiled in. Learning rates, momenta and decay steps
are data, so runs that differ in them share one compiled program.
"""

import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from factmem.training.protocol import Optimizer, Schedule
from factmem.transformer.model import Weights

__all__ = ["Hyperparameters", "gradient_transformation", "scheduled_learning_rate"]


class Hyperparameters(eqx.Module):
    """An optimizer's hyperparameters, for one run or, with a leading axis, for a stack of runs."""

    learning_rate: Float[Array, "*runs"]
    momentum: Float[Array, "*runs"]
    """β1 of Adam, β of Muon."""
    beta2: Float[Array, "*runs"]
    """β2 of Adam."""
    decay_steps: Float[Array, "*runs"]
    """The number of steps after which the schedule has decayed to 0."""


def scheduled_learning_rate(
    hyperparameters: Hyperparameters, schedule: Schedule, step: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the learning rate at a step, counted from 0.

    The `cosine` schedule decays from the full rate at step 0 to 0 at `decay_steps`, and stays 0.
    """
    if schedule == "constant":
        return hyperparameters.learning_rate
    progress = jnp.clip(step / hyperparameters.decay_steps, 0, 1)
    return hyperparameters.learning_rate * (1 + jnp.cos(jnp.pi * progress)) / 2


def gradient_transformation(
    optimizer: Optimizer, hyperparameters: Hyperparameters
) -> optax.GradientTransformation:
    """Return what maps gradients of `Weights` to directions, to be multiplied by −rate."""
    adam = optax.scale_by_adam(b1=hyperparameters.momentum, b2=hyperparameters.beta2)
    if optimizer == "adam":
        return adam
    bias_adam = optax.chain(adam, optax.scale(_BIAS_RATE))
    return optax.partition({"muon": _muon(hyperparameters), "adam": bias_adam}, _optimizer_labels)


_ALL_HEADS, _PER_HEAD = MuonDimensionNumbers((0, 1), 2), MuonDimensionNumbers(1, 2)
_MATRICES = {
    "query": _ALL_HEADS,
    "key": _ALL_HEADS,
    "value": _PER_HEAD,
    "output": _PER_HEAD,
    "mlp_in": MuonDimensionNumbers(0, 1),
    "mlp_out": MuonDimensionNumbers(0, 1),
}
"""Queries and keys are one matrix over all heads; values and outputs are one matrix per head.
This stored more facts than one choice for all four (docs/training.md)."""

_NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315),) * 5
"""Jordan's coefficients, repeated for each iteration: then optax loops over the iterations. Given
once, it unrolls them, and compilation takes twice as long."""

_SCORE_RATE, _BIAS_RATE = 0.3, 0.1
"""Relative to the learning rate. A score is a product of query and key, and a step moves both."""


def _muon(hyperparameters: Hyperparameters) -> optax.GradientTransformation:
    """Momentum, with each matrix replaced by (nearly) the nearest orthogonal one."""
    muon = scale_by_muon(
        _NEWTON_SCHULZ,
        ns_steps=len(_NEWTON_SCHULZ),
        beta=hyperparameters.momentum,
        weight_dimension_numbers=lambda weights: _tree_of(weights, _MATRICES),
    )
    rates = {name: _SCORE_RATE if axes is _ALL_HEADS else 1.0 for name, axes in _MATRICES.items()}
    return optax.chain(muon, _scale_by_name(rates))


def _scale_by_name(rates: dict[str, float]) -> optax.GradientTransformation:
    return optax.stateless(
        lambda updates, _: jax.tree.map(operator.mul, updates, _tree_of(updates, rates))
    )


def _tree_of(weights: Any, entries: dict[str, Any]) -> Any:
    """Return a tree like `weights` that holds the entry of each matrix's name."""
    return jax.tree_util.tree_map_with_path(lambda path, _: entries[path[-1].name], weights)


def _optimizer_labels(weights: Weights) -> Any:
    """Label matrices for Muon and the bias for Adam."""
    return jax.tree.map(lambda weight: "muon" if weight.ndim > 1 else "adam", weights)
