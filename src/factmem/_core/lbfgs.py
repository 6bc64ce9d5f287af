"""L-BFGS on a full batch, always in float64, with a status that says how it ended."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree
from scipy import optimize

from factmem._core.errors import FactmemError
from factmem._core.progress import Report

__all__ = ["Minimum", "Outcome", "minimize"]

_PAIRS = 20
"""Pairs of vectors that L-BFGS keeps."""
_FLAT = 1e-10


class Outcome(Enum):
    """How a minimization ended, as a sentence."""

    ENOUGH = "The caller's condition was met."
    FLAT = "The gradient vanished."
    STALLED = "No step lowers the loss any further in float64."
    ITERATIONS = "The limit of iterations was reached; more might lower the loss."
    NOT_FINITE = "The loss is not finite at the start."


@dataclass(frozen=True)
class Minimum:
    """Where a minimization ended.

    Args:
        point: the weights, as numpy float64 in the structure of the start.
        loss: the loss there.
        gradient: the largest magnitude among the entries of its gradient.
        iterations: steps of L-BFGS.
        outcome: why it ended.
    """

    point: Any
    loss: float
    gradient: float
    iterations: int
    outcome: Outcome


class _EnoughError(Exception):
    """Leaves scipy from within its callback."""


def minimize(
    loss: Callable[[Any, Any], Float[Array, ""]],
    start: PyTree,
    data: PyTree,
    *,
    iterations: int,
    enough: Callable[[Any], bool] | None = None,
    check_every: int = 50,
    report: Report | None = None,
) -> Minimum:
    """Minimizes `loss(weights, data)` over weights by L-BFGS-B, always in float64.

    Stops where the gradient's largest entry is below 1e-10, where rounding leaves no way down,
    after a number of iterations, or when `enough` says so; never because the loss moves slowly.

    Args:
        loss: a function of weights and data. The same function with the same shapes compiles
            once, so give one that is defined once: data come as the argument, not by closure.
        start: arrays, the weights to begin with.
        data: arrays, whatever else the loss needs.
        iterations: at most so many steps.
        enough: looks at the weights (numpy float64) every `check_every` steps; true ends it.
        check_every: steps from one such look, and from one report, to the next.
        report: told how far it is.

    Returns:
        The point with the lowest loss that was accepted, and how it came to an end.

    Raises:
        FactmemError: no iterations were asked for.
    """
    if iterations < 1 or check_every < 1:
        raise FactmemError("a minimization needs at least one iteration")
    with jax.enable_x64(True):
        as_float64 = partial(jax.tree.map, _wide)
        flat, restore = ravel_pytree(as_float64(start))
        data = as_float64(data)
        steps = 0
        last = np.asarray(flat)

        def weights_at(point: np.ndarray) -> Any:
            return jax.tree.map(np.asarray, restore(jnp.asarray(point)))

        def loss_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = _loss_and_slope(loss, restore(jnp.asarray(point)), data)
            return float(value), np.asarray(ravel_pytree(slope)[0])

        def look(intermediate_result: Any) -> None:
            nonlocal steps, last
            steps, last = steps + 1, intermediate_result.x.copy()
            if steps % check_every:
                return
            if report is not None:
                report(steps, loss=float(intermediate_result.fun))
            if enough is not None and enough(weights_at(last)):
                raise _EnoughError

        if not np.isfinite(loss_and_slope(last)[0]):
            return Minimum(weights_at(last), np.inf, np.inf, 0, Outcome.NOT_FINITE)
        try:
            found = optimize.minimize(
                loss_and_slope,
                last,
                jac=True,
                method="L-BFGS-B",
                callback=look,
                options={
                    "maxiter": iterations,
                    "maxfun": 20 * iterations,
                    "ftol": 0.0,
                    "gtol": _FLAT,
                    "maxcor": _PAIRS,
                },
            )
            last, outcome = found.x, _outcome(found)
        except _EnoughError:
            outcome = Outcome.ENOUGH
        value, slope = loss_and_slope(last)
        return Minimum(weights_at(last), value, float(np.abs(slope).max()), steps, outcome)


@partial(jax.jit, static_argnums=0)
def _loss_and_slope(loss: Callable[[Any, Any], Array], weights: Any, data: Any) -> tuple[Any, Any]:
    return jax.value_and_grad(loss)(weights, data)


def _wide(leaf: Any) -> Any:
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _outcome(found: Any) -> Outcome:
    if np.abs(found.jac).max() <= _FLAT:
        return Outcome.FLAT
    return Outcome.ITERATIONS if found.status == 1 else Outcome.STALLED
