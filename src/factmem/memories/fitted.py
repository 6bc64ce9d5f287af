"""MLP memories fitted to their associations: full-batch L-BFGS, no stochastic training.

Hinges of plain outputs fail near the limit of what the width can hold: there it pays to shrink all
outputs, until a margin of 1 is far away for every key, and accuracy collapses. So outputs are
measured in units of their own size, and how sharply competitors are told apart is a schedule:

    minimize Σ_x log(1 + c s_x²)/c,   s_x = softplus(1 + log Σ_{y ≠ f*(x)} exp(−β γ̂_xy)),

with the margins γ̂ of F̂ = F / √(mean_x ‖F(e_x)‖²), for β = 20, 40, 80, …, each from where the last
one ended. It is over when every margin γ̂ is at least 10⁻⁴ in float32 with weights of 16 bits. Past
the limit the logarithm (c = 0.03) lets the hardest keys go and keeps the others.
"""

from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.lbfgs import Minimum, Outcome, minimize
from factmem._core.progress import Report
from factmem._core.random import normal
from factmem.memories.activations import Relu
from factmem.memories.associations import Associations
from factmem.memories.margin_losses import gentle_hinge, squared_hinge
from factmem.memories.memory import Memory
from factmem.memories.mlp import BilinearMemory, MLPMemory, checked_width
from factmem.memories.precision import rounded

__all__ = ["Fitted", "Start", "fitted_bilinear", "fitted_features", "fitted_relu"]

_SHARPNESS = tuple(20.0 * 2**stage for stage in range(8))
"""β, stage by stage."""
_GENTLENESS = 0.03
"""c: at 0.01 and at 0.1 more keys are lost past the limit."""
_LEAST_MARGIN = 1e-4
_BITS = 16
_LOOK_EVERY = 25

Start = Literal["random", "convex"]


@dataclass(frozen=True)
class Fitted:
    """A fitted memory.

    Args:
        memory: in float32.
        complete: whether everything is recalled with some margin by weights of 16 bits.
        iterations: of L-BFGS, in all.
        outcome: how the last minimization ended.
    """

    memory: Memory
    complete: bool
    iterations: int
    outcome: Outcome


def fitted_features(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    iterations: int = 4000,
    report: Report | None = None,
) -> Fitted:
    """Random ReLU features with the best readout V: the squared hinge, a convex problem.

    Args:
        key: randomness for the features w_i ~ N(0, I).
        associations: what to store.
        width: m, the number of neurons.
        iterations: at most so many steps.
        report: told how far it is.

    Raises:
        FactmemError: no neurons.
    """
    into = normal(key, _shape(width, associations))
    features = jax.nn.relu(_products(associations.keys, into))
    out, found = _best_readout(features, associations, iterations, report)
    memory = _float32(MLPMemory(into, out, Relu()))
    return Fitted(memory, _suffices(memory, associations), found.iterations, found.outcome)


def fitted_relu(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    start: Start = "random",
    iterations: int = 150,
    report: Report | None = None,
) -> Fitted:
    """F(e) = Vᵀ relu(W e), all 2 m d weights fitted.

    Args:
        key: randomness for the start.
        associations: what to store.
        width: m, the number of neurons.
        start: `random` weights, or random W with the `convex` solution for V.
        iterations: at most so many steps for each of the eight stages.
        report: told how far it is.

    Raises:
        FactmemError: no neurons.
    """
    shape = _shape(width, associations, start)
    into, out = (normal(one, shape) for one in jr.split(key))
    if start == "convex":
        features = jax.nn.relu(_products(associations.keys, into))
        out, _ = _best_readout(features, associations, iterations, report)
    return _all_fitted(MLPMemory(into, out, Relu()), associations, iterations, report)


def fitted_bilinear(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    start: Start = "random",
    iterations: int = 150,
    report: Report | None = None,
) -> Fitted:
    """F(e) = Vᵀ ((A e) ⊙ (B e)), all 3 m d weights fitted: the most facts a number.

    Args:
        key: randomness for the start.
        associations: what to store.
        width: m, the number of neurons.
        start: `random` weights, or random A and B with the `convex` solution for V.
        iterations: at most so many steps for each of the eight stages.
        report: told how far it is.

    Raises:
        FactmemError: no neurons.
    """
    shape = _shape(width, associations, start)
    left, right, out = (normal(one, shape) for one in jr.split(key, 3))
    if start == "convex":
        features = _products(associations.keys, left) * _products(associations.keys, right)
        out, _ = _best_readout(features, associations, iterations, report)
    return _all_fitted(BilinearMemory(left, right, out), associations, iterations, report)


def _all_fitted(
    memory: Memory, associations: Associations, iterations: int, report: Report | None
) -> Fitted:
    """All weights, stage by stage, until weights of 16 bits suffice."""
    steps, outcome = 0, Outcome.ITERATIONS

    def report_all(stage_steps: int, loss: float) -> None:
        if report is not None:
            report(steps + stage_steps, loss=loss)

    for sharpness in _SHARPNESS:
        found = minimize(
            _stage_loss,
            memory,
            (associations, np.asarray(sharpness)),
            iterations=iterations,
            enough=lambda weights: _suffices(_float32(weights), associations),
            check_every=_LOOK_EVERY,
            report=report_all,
        )
        memory = _float32(jax.tree.map(_balanced, found.point))
        steps, outcome = steps + found.iterations, found.outcome
        if outcome is Outcome.ENOUGH:
            break
    return Fitted(memory, _suffices(memory, associations), steps, outcome)


def _stage_loss(memory: Memory, data: tuple[Associations, Array]) -> Float[Array, ""]:
    associations, sharpness = data
    outputs = sharpness * _normalized(memory, associations)
    return gentle_hinge(outputs, associations.values, associations.target, jnp.asarray(_GENTLENESS))


def _normalized(memory: Memory, associations: Associations) -> Float[Array, "facts dim"]:
    """F(e_x) of all keys, in units of its root mean square."""
    outputs = jax.vmap(memory)(associations.keys)
    return outputs / jnp.sqrt(jnp.mean(jnp.sum(outputs**2, axis=1)))


def _suffices(memory: Memory, associations: Associations) -> bool:
    """Whether everything is recalled with some margin by weights of 16 bits."""
    return float(_missing(rounded(memory, _BITS), _float32(associations))) == 0


@eqx.filter_jit
def _missing(memory: Memory, associations: Associations) -> Float[Array, ""]:
    """Zero exactly where every margin of the normalized outputs is large enough."""
    outputs = _normalized(memory, associations) / _LEAST_MARGIN
    return squared_hinge(outputs, associations.values, associations.target)


def _best_readout(
    features: Float[Array, "facts width"],
    associations: Associations,
    iterations: int,
    report: Report | None,
) -> tuple[Float[Array, "width dim"], Minimum]:
    """V with the smallest squared hinge of F(e_x) = Vᵀ features(x)."""
    start = _products(features.T, associations.answers.T) / features.shape[1]
    data = (features, associations.values, associations.target)
    found = minimize(_readout_loss, start, data, iterations=iterations, report=report)
    return jnp.asarray(found.point, jnp.float32), found


def _readout_loss(
    out: Float[Array, "width dim"], data: tuple[Array, Array, Array]
) -> Float[Array, ""]:
    features, values, target = data
    return squared_hinge(features @ out, values, target)


def _balanced(weights: np.ndarray) -> np.ndarray:
    """Of root mean square 1: the loss has no scale, and weights would drift."""
    return weights / np.sqrt(np.mean(weights**2))


def _float32(tree: Any) -> Any:
    """The same with all its floating-point numbers in float32, whatever the user's mode."""

    def single(leaf: Any) -> Any:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, jnp.float32) if floating else leaf

    return jax.tree.map(single, tree)


def _products(left: Float[Array, "rows dim"], right: Float[Array, "columns dim"]) -> Array:
    return jnp.matmul(left, right.T, precision=jax.lax.Precision.HIGHEST)


def _shape(width: int, associations: Associations, start: Start = "random") -> tuple[int, int]:
    if start not in ("random", "convex"):
        raise FactmemError(f"a fit starts from 'random' or 'convex' weights, not '{start}'")
    return checked_width(width), associations.dim
