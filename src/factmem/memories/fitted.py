"""MLP memories fitted to their associations: full-batch L-BFGS on hinges, no stochastic training.

First the smooth hinge, from up to four starts: it brings every margin to 1 within some hundred
steps, or stalls. Past what the width can hold a squared loss spreads its slack over all keys and
accuracy collapses; so if every start stalls, the gentle hinge with growing c goes on from the best
one, gives the hardest keys up and keeps the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from factmem.activations import Relu
from factmem.decoding import recalled
from factmem.errors import FactmemError
from factmem.hinge import Outcome, Report, gentle_hinge, minimise, smooth_hinge, squared_hinge
from factmem.memories.associations import Associations
from factmem.memories.memory import Memory
from factmem.memories.mlp import BilinearMemory, MLPMemory

__all__ = ["Fitted", "Start", "fitted_bilinear", "fitted_features", "fitted_relu"]

_STARTS = 4
_START_SCALE = 0.5
_HOPELESS = 0.7
"""A share of wrong answers at which a start has failed so far that others end no better."""
_GENTLENESS = (0.01, 0.03, 0.1, 1.0)
_GENTLE_ITERATIONS = 400
_LOOK_EVERY = 25

Start = Literal["random", "convex"]
Data = tuple[Array, Array, Array]
"""What goes into the model (keys or features), values, target."""


@dataclass(frozen=True)
class Fitted:
    """A fitted memory.

    Args:
        memory: in float32.
        complete: whether every margin reached 1 in float64.
        starts: how many starts were tried.
        iterations: of L-BFGS, in all.
        outcome: how the last minimisation ended.
    """

    memory: Memory
    complete: bool
    starts: int
    iterations: int
    outcome: Outcome


def fitted_features(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    iterations: int = 2000,
    report: Report | None = None,
) -> Fitted:
    """Random ReLU features with the best readout V: a convex problem.

    Args:
        key: randomness for the features w_i ~ N(0, I).
        associations: what to store.
        width: m, the number of neurons.
        iterations: at most so many steps of the smooth hinge.
        report: told how far it is.

    Raises:
        FactmemError: no neurons.
    """
    into = jr.normal(key, (_checked(width), associations.dim))
    features = jax.nn.relu(_products(associations.keys, into))
    fit = _readout(features, associations, iterations, report)
    memory = MLPMemory(into, jnp.asarray(fit.weights, jnp.float32), Relu())
    return Fitted(memory, fit.complete, fit.starts, fit.iterations, fit.outcome)


def fitted_relu(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    start: Start = "random",
    iterations: int = 1000,
    report: Report | None = None,
) -> Fitted:
    """F(e) = Vᵀ relu(W e), all 2 m d weights fitted.

    Args:
        key: randomness for the starts.
        associations: what to store.
        width: m, the number of neurons.
        start: `random` weights, or random W with the `convex` solution for V.
        iterations: at most so many steps of the smooth hinge from each start.
        report: told how far it is.

    Raises:
        FactmemError: no neurons.
    """
    shape = (_checked(width), associations.dim)

    def begin(key: Key[Array, ""]) -> MLPMemory:
        into, out = (_START_SCALE * jr.normal(one, shape) for one in jr.split(key))
        if start == "convex":
            features = jax.nn.relu(_products(associations.keys, into))
            out = jnp.asarray(_readout(features, associations, iterations, report).weights)
        return MLPMemory(into, out, Relu())

    return _network(map(begin, jr.split(key, _STARTS)), associations, iterations, report)


def fitted_bilinear(
    key: Key[Array, ""],
    associations: Associations,
    width: int,
    start: Start = "random",
    iterations: int = 1000,
    report: Report | None = None,
) -> Fitted:
    """F(e) = Vᵀ ((A e) ⊙ (B e)), all 3 m d weights fitted: the most facts a number.

    Args:
        key: randomness for the starts.
        associations: what to store.
        width: m, the number of neurons.
        start: `random` weights, or random A and B with the `convex` solution for V.
        iterations: at most so many steps of the smooth hinge from each start.
        report: told how far it is.

    Raises:
        FactmemError: no neurons.
    """
    shape = (_checked(width), associations.dim)

    def begin(key: Key[Array, ""]) -> BilinearMemory:
        left, right, out = (_START_SCALE * jr.normal(one, shape) for one in jr.split(key, 3))
        if start == "convex":
            keys = associations.keys
            features = _products(keys, left) * _products(keys, right)
            out = jnp.asarray(_readout(features, associations, iterations, report).weights)
        return BilinearMemory(left, right, out)

    return _network(map(begin, jr.split(key, _STARTS)), associations, iterations, report)


@dataclass(frozen=True)
class _Losses:
    """The losses of one model, as functions of its weights and of data."""

    smooth: Callable[[Any, Data], Array]
    gentle: Callable[[Any, tuple[Data, Array]], Array]
    squared: Callable[[Any, Data], Array]
    wrong: Callable[[Any, Data], Array]

    @classmethod
    def of(cls, outputs: Callable[[Any, Array], Array]) -> "_Losses":
        return cls(
            smooth=lambda weights, data: smooth_hinge(outputs(weights, data[0]), *data[1:]),
            gentle=lambda weights, data: gentle_hinge(
                outputs(weights, data[0][0]), *data[0][1:], data[1]
            ),
            squared=lambda weights, data: squared_hinge(outputs(weights, data[0]), *data[1:]),
            wrong=lambda weights, data: jnp.mean(~recalled(outputs(weights, data[0]), *data[1:])),
        )


# Made once: a loss is compiled once for each function that it is.
_NETWORK = _Losses.of(lambda memory, keys: jax.vmap(memory)(keys))
_READOUT = _Losses.of(lambda out, features: features @ out)


@dataclass(frozen=True)
class _Fit:
    weights: Any
    complete: bool
    starts: int
    iterations: int
    outcome: Outcome


def _network(
    starts: Iterable[Memory], associations: Associations, iterations: int, report: Report | None
) -> Fitted:
    data = (associations.keys, associations.values, associations.target)
    fit = _fit(_NETWORK, starts, data, iterations, report)
    memory = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), fit.weights)
    return Fitted(memory, fit.complete, fit.starts, fit.iterations, fit.outcome)


def _readout(
    features: Float[Array, "facts width"],
    associations: Associations,
    iterations: int,
    report: Report | None,
) -> _Fit:
    start = _products(features.T, associations.answers.T) / features.shape[1]
    data = (features, associations.values, associations.target)
    return _fit(_READOUT, [start], data, iterations, report)


def _fit(
    losses: _Losses, starts: Iterable[Any], data: Data, iterations: int, report: Report | None
) -> _Fit:
    """The smooth hinge from every start until one completes, else the gentle hinges."""
    options: dict[str, Any] = {
        "enough": lambda weights: _value(losses.squared, weights, data) == 0,
        "check_every": _LOOK_EVERY,
        "report": report,
    }
    ends: list[tuple[float, Any]] = []
    steps = 0
    for start in starts:
        found = minimise(losses.smooth, start, data, iterations=iterations, **options)
        ends.append((_value(losses.wrong, found.point, data), found.point))
        steps += found.iterations
        if found.outcome is Outcome.ENOUGH:
            return _Fit(found.point, True, len(ends), steps, found.outcome)
        if ends[-1][0] > _HOPELESS:
            break
    _, point = min(ends, key=lambda end: end[0])
    outcome = Outcome.ITERATIONS
    for gentleness in map(np.asarray, _GENTLENESS):
        found = minimise(
            losses.gentle, point, (data, gentleness), iterations=_GENTLE_ITERATIONS, **options
        )
        point, outcome, steps = found.point, found.outcome, steps + found.iterations
        if outcome is Outcome.ENOUGH:
            break
    return _Fit(point, outcome is Outcome.ENOUGH, len(ends), steps, outcome)


def _value(loss: Callable[[Any, Any], Array], weights: Any, data: Any) -> float:
    with jax.enable_x64(True):
        return float(_compiled_value(loss, weights, data))


@partial(jax.jit, static_argnums=0)
def _compiled_value(loss: Callable[[Any, Any], Array], weights: Any, data: Any) -> Array:
    return loss(weights, data)


def _products(left: Float[Array, "rows dim"], right: Float[Array, "columns dim"]) -> Array:
    return jnp.matmul(left, right.T, precision=jax.lax.Precision.HIGHEST)


def _checked(width: int) -> int:
    if width < 1:
        raise FactmemError(f"an MLP memory needs at least one neuron, not {width}")
    return width
