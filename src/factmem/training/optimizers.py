"""What turns gradients into steps: Adam, as in the paper, or Muon; and how the rate falls.

Only the kind of optimizer and of schedule is compiled in. Learning rates, momenta and horizons are
data: runs that differ in them share one program.
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

__all__ = ["Settings", "learning_rate", "transformation"]


class Settings(eqx.Module):
    """The numbers of an optimizer, for one run or, with a leading axis, for a stack of them."""

    learning_rate: Float[Array, "*runs"]
    momentum: Float[Array, "*runs"]
    """β1 of Adam, β of Muon."""
    memory: Float[Array, "*runs"]
    """β2 of Adam, how long squared gradients are remembered."""
    horizon: Float[Array, "*runs"]
    """The steps after which a schedule has come to its end."""


def learning_rate(
    settings: Settings, schedule: Schedule, step: Float[Array, ""]
) -> Float[Array, ""]:
    """The rate of a step; the first is number 0.

    `cosine` falls from the full rate at step 0 to nothing at the horizon, and stays there.
    """
    if schedule == "constant":
        return settings.learning_rate
    through = jnp.clip(step / settings.horizon, 0, 1)
    return settings.learning_rate * (1 + jnp.cos(jnp.pi * through)) / 2


def transformation(kind: Optimizer, settings: Settings) -> optax.GradientTransformation:
    """What makes gradients of `Weights` into directions, to be multiplied by −rate."""
    adam = optax.scale_by_adam(b1=settings.momentum, b2=settings.memory)
    if kind == "adam":
        return adam
    slow_adam = optax.chain(adam, optax.scale(_BIAS_RATE))
    return optax.partition({"muon": _muon(settings), "adam": slow_adam}, _kinds)


_TOGETHER, _BY_HEAD = MuonDimensionNumbers((0, 1), 2), MuonDimensionNumbers(1, 2)
_MATRICES = {
    "query": _TOGETHER,
    "key": _TOGETHER,
    "value": _BY_HEAD,
    "output": _BY_HEAD,
    "mlp_in": MuonDimensionNumbers(0, 1),
    "mlp_out": MuonDimensionNumbers(0, 1),
}
"""Queries and keys are one matrix for all heads, values and outputs one for each head, which
stored more than any of the two for all (docs/training.md)."""

_NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315),) * 5
"""Jordan's coefficients, once for each step: given so, optax loops over the steps. Given once, it
writes them out one after the other, which compiles for twice as long."""

_SCORE_RATE, _BIAS_RATE = 0.3, 0.1
"""Relative to the learning rate. Scores are products of queries and keys, which move both."""


def _muon(settings: Settings) -> optax.GradientTransformation:
    """Momentum, each matrix of it replaced by nearly the nearest orthogonal one."""
    muon = scale_by_muon(
        _NEWTON_SCHULZ,
        ns_steps=len(_NEWTON_SCHULZ),
        beta=settings.momentum,
        weight_dimension_numbers=lambda weights: _with(weights, _MATRICES),
    )
    rates = {name: _SCORE_RATE if axes is _TOGETHER else 1.0 for name, axes in _MATRICES.items()}
    return optax.chain(muon, _times(rates))


def _times(rates: dict[str, float]) -> optax.GradientTransformation:
    return optax.stateless(
        lambda updates, _: jax.tree.map(operator.mul, updates, _with(updates, rates))
    )


def _with(weights: Any, entries: dict[str, Any]) -> Any:
    """A tree like `weights`, with these entries for its matrices."""
    return jax.tree_util.tree_map_with_path(lambda path, _: entries[path[-1].name], weights)


def _kinds(weights: Weights) -> Any:
    """Matrices by Muon, the bias by Adam."""
    return jax.tree.map(lambda weight: "muon" if weight.ndim > 1 else "adam", weights)
