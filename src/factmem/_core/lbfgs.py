"""Full-batch L-BFGS in float64, with a status that says how it ended."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import optimize

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem._core.result import Status

__all__ = ["FitStatus", "Minimum", "minimize"]

_HISTORY_SIZE = 20
"""Pairs of vectors that L-BFGS stores."""
_GRADIENT_TOLERANCE = 1e-10


class FitStatus(Status):
    """How a minimization ended."""

    CONDITION_MET = "The stopping condition was met."
    CONVERGED = "The gradient vanished."
    STALLED = "No step lowers the loss any further in float64."
    ITERATION_LIMIT = "The iteration limit was reached; more iterations might lower the loss."
    NOT_FINITE = "The loss is not finite at the start."


@dataclass(frozen=True)
class Minimum:
    """The result of a minimization.

    Args:
        point: the weights, numpy float64 arrays in the structure of the start.
        loss: the loss at that point.
        max_gradient: the largest absolute entry of the gradient at that point.
        iterations: the number of L-BFGS steps.
        status: how the minimization ended.
    """

    point: Any
    loss: float
    max_gradient: float
    iterations: int
    status: FitStatus


def minimize(
    loss: Callable[[Any, Any], Float[Array, ""]],
    start: PyTree,
    data: PyTree,
    *,
    iterations: int,
    stop_when: Callable[[Any], bool] | None = None,
    check_every: int = 50,
    report: Report | None = None,
) -> Minimum:
    """Minimize `loss(weights, data)` over the weights by L-BFGS-B in float64.

    Stops when the largest entry of the gradient is below 1e-10, when rounding leaves no descent
    direction, at the iteration limit, or when `stop_when` returns true. Slow progress alone never
    stops it.

    Args:
        loss: a function of weights and data. It is compiled once per function object and shapes,
            so define it once and pass data as an argument instead of closing over it.
        start: the initial weights, a pytree of arrays.
        data: a pytree of arrays that the loss needs.
        iterations: the maximum number of steps.
        stop_when: called with the weights (numpy float64) every `check_every` steps.
        check_every: the number of steps between two checks, and between two reports.
        report: called with the progress.

    Returns:
        The last accepted point, which has the lowest loss, and the status.

    Raises:
        FactmemError: `iterations` or `check_every` is below 1.
    """
    if iterations < 1 or check_every < 1:
        raise FactmemError(
            f"iterations and check_every must be at least 1, got {iterations} and {check_every}"
        )
    with jax.enable_x64(True):
        # Flattened in numpy, because jax would compile each of these operations.
        leaves, structure = jax.tree.flatten(jax.tree.map(_to_float64, start))
        data = jax.device_put(jax.tree.map(_to_float64, data))
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        steps = 0
        condition_met = False
        last = _flatten(leaves)

        def weights_at(point: np.ndarray) -> Any:
            parts = zip(np.split(point, ends), leaves, strict=True)
            return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts])

        def loss_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = _loss_and_gradient(loss, weights_at(point), data)
            return float(value), _flatten(jax.tree.leaves(gradient))

        def after_step(intermediate_result: Any) -> None:
            nonlocal steps, condition_met, last
            steps, last = steps + 1, intermediate_result.x.copy()
            if steps % check_every:
                return
            if report is not None:
                report(steps, loss=float(intermediate_result.fun))
            if stop_when is not None and stop_when(weights_at(last)):
                condition_met = True
                raise StopIteration  # scipy's signal to stop

        if not np.isfinite(loss_and_gradient(last)[0]):
            return Minimum(weights_at(last), np.inf, np.inf, 0, FitStatus.NOT_FINITE)
        result = optimize.minimize(
            loss_and_gradient,
            last,
            jac=True,
            method="L-BFGS-B",
            callback=after_step,
            options={
                "maxiter": iterations,
                "maxfun": 20 * iterations,
                "ftol": 0.0,
                "gtol": _GRADIENT_TOLERANCE,
                "maxcor": _HISTORY_SIZE,
            },
        )
        if condition_met:
            status = FitStatus.CONDITION_MET
        else:
            last, status = result.x, _status(result)
        value, gradient = loss_and_gradient(last)
        return Minimum(weights_at(last), value, float(np.abs(gradient).max()), steps, status)


@partial(jax.jit, static_argnums=0)
def _loss_and_gradient(
    loss: Callable[[Any, Any], Array], weights: Any, data: Any
) -> tuple[Any, Any]:
    return jax.value_and_grad(loss)(weights, data)


def _to_float64(leaf: Any) -> np.ndarray:
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _flatten(leaves: list[Any]) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def _status(result: Any) -> FitStatus:
    if np.abs(result.jac).max() <= _GRADIENT_TOLERANCE:
        return FitStatus.CONVERGED
    return FitStatus.ITERATION_LIMIT if result.status == 1 else FitStatus.STALLED
