"""MLP memories fitted to their associations by full-batch L-BFGS.

A hinge loss of the raw outputs fails near the capacity: shrinking all outputs lowers the loss, all
margins fall far below 1, and accuracy collapses. So outputs are normalized, and the sharpness β of
the smooth maximum over competitors follows a schedule:

    minimize Σ_x log(1 + c s_x²)/c,   s_x = softplus(1 + log Σ_{y ≠ f*(x)} exp(−β γ̂_xy)),

with the margins γ̂ of F̂ = F / √(mean_x ‖F(e_x)‖²), for β = 20, 40, 80, …, each stage starting from
the result of the last. The fit stops when every margin γ̂ is at least 10⁻⁴ in float32 with weights
of 16 bits. Above the capacity the logarithm (c = 0.03) gives up the hardest keys.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from factmem._core.constants import DEFAULT_WEIGHT_BITS
from factmem._core.errors import FactmemError
from factmem._core.lbfgs import FitStatus, Minimum, minimize
from factmem._core.progress import Report
from factmem._core.random import normal
from factmem._core.result import Result
from factmem.memories.activations import Relu
from factmem.memories.associations import Associations
from factmem.memories.margin_losses import robust_hinge, squared_hinge
from factmem.memories.memory import Memory
from factmem.memories.mlp import BilinearMemory, MLPMemory, check_width
from factmem.memories.precision import rounded

__all__ = ["FitResult", "Start", "fitted_bilinear", "fitted_features", "fitted_relu"]

_SHARPNESS = tuple(20.0 * 2**stage for stage in range(8))
"""β of every stage."""
_ROBUSTNESS = 0.03
"""c: with 0.01 or 0.1 more keys are lost above the capacity."""
_MIN_MARGIN = 1e-4
_CHECK_EVERY = 25

Start = Literal["random", "convex"]
MemoryT = TypeVar("MemoryT", bound=Memory)


@dataclass(frozen=True, kw_only=True)
class FitResult(Result[MemoryT]):
    """A fitted memory and how its fit ended.

    Args:
        model: the memory, in float32.
        status: how the last minimization ended.
        complete: whether weights of 16 bits recall every association with a margin of at least
            10⁻⁴ of the root mean square output.
        iterations: the total number of L-BFGS steps.
    """

    status: FitStatus
    complete: bool
    iterations: int

    @property
    def metrics(self) -> dict[str, Any]:
        """Completeness, iterations and status as JSON data."""
        return {
            "complete": self.complete,
            "iterations": self.iterations,
            "status": self.status.label,
        }


def fitted_features(
    associations: Associations,
    width: int,
    iterations: int = 4000,
    report: Report | None = None,
    *,
    key: Key[Array, ""],
) -> FitResult[MLPMemory]:
    """Fit the readout V of random ReLU features, a convex problem with the squared hinge.

    Args:
        associations: what to store.
        width: m, the number of neurons.
        iterations: the maximum number of steps.
        report: called with the progress.
        key: the random key for the features w_i ~ N(0, I).

    Raises:
        FactmemError: the width is below 1.
    """
    into = normal(key, _weight_shape(width, associations))
    features = jax.nn.relu(_products(associations.keys, into))
    out, minimum = _fit_readout(features, associations, iterations, report)
    return _result(
        _to_float32(MLPMemory(into, out, Relu())), associations, minimum.iterations, minimum.status
    )


def fitted_relu(
    associations: Associations,
    width: int,
    start: Start = "random",
    iterations: int = 150,
    report: Report | None = None,
    *,
    key: Key[Array, ""],
) -> FitResult[MLPMemory]:
    """Fit all 2 m d weights of F(e) = Vᵀ relu(W e).

    Args:
        associations: what to store.
        width: m, the number of neurons.
        start: `random` weights, or random W with the `convex` solution for V.
        iterations: the maximum number of steps of each of the eight stages.
        report: called with the progress.
        key: the random key for the initial weights.

    Raises:
        FactmemError: the width is below 1, or the start is unknown.
    """
    shape = _weight_shape(width, associations, start)
    into, out = (normal(k, shape) for k in jr.split(key))
    if start == "convex":
        features = jax.nn.relu(_products(associations.keys, into))
        out, _ = _fit_readout(features, associations, iterations, report)
    return _fit_all_weights(MLPMemory(into, out, Relu()), associations, iterations, report)


def fitted_bilinear(
    associations: Associations,
    width: int,
    start: Start = "random",
    iterations: int = 150,
    report: Report | None = None,
    *,
    key: Key[Array, ""],
) -> FitResult[BilinearMemory]:
    """Fit all 3 m d weights of F(e) = Vᵀ ((A e) ⊙ (B e)), which stores the most per parameter.

    Args:
        associations: what to store.
        width: m, the number of neurons.
        start: `random` weights, or random A and B with the `convex` solution for V.
        iterations: the maximum number of steps of each of the eight stages.
        report: called with the progress.
        key: the random key for the initial weights.

    Raises:
        FactmemError: the width is below 1, or the start is unknown.
    """
    shape = _weight_shape(width, associations, start)
    left, right, out = (normal(k, shape) for k in jr.split(key, 3))
    if start == "convex":
        features = _products(associations.keys, left) * _products(associations.keys, right)
        out, _ = _fit_readout(features, associations, iterations, report)
    return _fit_all_weights(BilinearMemory(left, right, out), associations, iterations, report)


def _result(
    memory: MemoryT, associations: Associations, iterations: int, status: FitStatus
) -> FitResult[MemoryT]:
    complete = _is_complete(memory, associations)
    return FitResult(model=memory, status=status, complete=complete, iterations=iterations)


def _fit_all_weights(
    memory: MemoryT, associations: Associations, iterations: int, report: Report | None
) -> FitResult[MemoryT]:
    """Fit all weights, stage by stage, until the fit is complete."""
    steps, status = 0, FitStatus.ITERATION_LIMIT

    def report_all(stage_steps: int, loss: float) -> None:
        if report is not None:
            report(steps + stage_steps, loss=loss)

    for sharpness in _SHARPNESS:
        minimum = minimize(
            _stage_loss,
            memory,
            (associations, np.asarray(sharpness)),
            iterations=iterations,
            stop_when=lambda weights: _is_complete(_to_float32(weights), associations),
            check_every=_CHECK_EVERY,
            report=report_all,
        )
        memory = _to_float32(jax.tree.map(_rescale, minimum.point))
        steps, status = steps + minimum.iterations, minimum.status
        if status is FitStatus.CONDITION_MET:
            break
    return _result(memory, associations, steps, status)


def _stage_loss(memory: Memory, data: tuple[Associations, Array]) -> Float[Array, ""]:
    associations, sharpness = data
    outputs = sharpness * _normalized_outputs(memory, associations)
    return robust_hinge(outputs, associations.values, associations.target, jnp.asarray(_ROBUSTNESS))


def _normalized_outputs(memory: Memory, associations: Associations) -> Float[Array, "facts dim"]:
    """Compute F(e_x) of all keys, divided by the root mean square of ‖F(e_x)‖."""
    outputs = jax.vmap(memory)(associations.keys)
    return outputs / jnp.sqrt(jnp.mean(jnp.sum(outputs**2, axis=1)))


def _is_complete(memory: Memory, associations: Associations) -> bool:
    """Return whether weights of 16 bits recall every association with the minimum margin."""
    quantized = rounded(memory, DEFAULT_WEIGHT_BITS)
    return float(_margin_violation(quantized, _to_float32(associations))) == 0


@eqx.filter_jit
def _margin_violation(memory: Memory, associations: Associations) -> Float[Array, ""]:
    """Return zero if and only if every normalized margin is at least `_MIN_MARGIN`."""
    outputs = _normalized_outputs(memory, associations) / _MIN_MARGIN
    return squared_hinge(outputs, associations.values, associations.target)


def _fit_readout(
    features: Float[Array, "facts width"],
    associations: Associations,
    iterations: int,
    report: Report | None,
) -> tuple[Float[Array, "width dim"], Minimum]:
    """Minimize the squared hinge of F(e_x) = Vᵀ features(x) over V."""
    start = _products(features.T, associations.answers.T) / features.shape[1]
    data = (features, associations.values, associations.target)
    minimum = minimize(_readout_loss, start, data, iterations=iterations, report=report)
    return jnp.asarray(minimum.point, jnp.float32), minimum


def _readout_loss(
    out: Float[Array, "width dim"], data: tuple[Array, Array, Array]
) -> Float[Array, ""]:
    features, values, target = data
    return squared_hinge(features @ out, values, target)


def _rescale(weights: np.ndarray) -> np.ndarray:
    """Rescale to root mean square 1: the loss is scale-free, and weights would drift."""
    return weights / np.sqrt(np.mean(weights**2))


def _to_float32(tree: Any) -> Any:
    """Convert all floating-point arrays to float32, even if jax's 64-bit mode is on."""

    def convert(leaf: Any) -> Any:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, jnp.float32) if floating else leaf

    return jax.tree.map(convert, tree)


def _products(left: Float[Array, "rows dim"], right: Float[Array, "columns dim"]) -> Array:
    return jnp.matmul(left, right.T, precision=jax.lax.Precision.HIGHEST)


def _weight_shape(
    width: int, associations: Associations, start: Start = "random"
) -> tuple[int, int]:
    if start not in ("random", "convex"):
        raise FactmemError(f"start must be 'random' or 'convex', got '{start}'")
    return check_width(width), associations.dim
