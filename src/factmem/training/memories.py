"""Memories trained by the paper's own protocol (Figures 1 and 6): cross-entropy, Adam, full batch.

IndependentTasks of one shape are stacked and trained together. What differs between them (weights,
associations) and the learning rate are data, so that nothing is compiled twice for one shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.nn.initializers import lecun_normal
from jaxtyping import Array, Float, Key

from factmem._core.errors import FactmemError
from factmem._core.progress import Report
from factmem.memories.activations import Relu
from factmem.memories.associations import Associations
from factmem.memories.decoding import cross_entropy_of_one, loss_of_each, recalled
from factmem.memories.linear import LinearMemory
from factmem.memories.memory import Memory
from factmem.memories.mlp import MLPMemory, checked_width
from factmem.training.protocol import MemoryProtocol
from factmem.training.status import TrainingOutcome

__all__ = ["TrainedMemory", "linear_start", "mlp_start", "train_memories"]

_STEPS_AT_ONCE = 32
"""One compiled piece: short, so that the loop around it can report and be interrupted."""


@dataclass(frozen=True)
class TrainedMemory:
    """One training run.

    Args:
        memory: the weights where it ended.
        accuracy: there.
        best_accuracy: the largest accuracy at any check, which is what the paper counts.
        loss: mean cross-entropy at the last check, in nats.
        steps: done until it ended.
        outcome: why it ended.
    """

    memory: Memory
    accuracy: float
    best_accuracy: float
    loss: float
    steps: int
    outcome: TrainingOutcome


def linear_start(key: Key[Array, ""], dim: int) -> LinearMemory:
    """A d × d matrix as the authors start it: normal, truncated, of variance 1/d."""
    if dim < 1:
        raise FactmemError(f"a matrix has at least one dimension, not {dim}")
    return LinearMemory(lecun_normal()(key, (dim, dim)).T)


def mlp_start(key: Key[Array, ""], dim: int, width: int) -> MLPMemory:
    """A ReLU MLP as the authors start it, with a bias in its hidden layer: 2 m d + m numbers.

    Raises:
        FactmemError: no neurons.
    """
    width = checked_width(width)
    into_key, out_key = jr.split(key)
    return MLPMemory(
        into=lecun_normal()(into_key, (dim, width)).T,
        out=lecun_normal()(out_key, (width, dim)),
        activation=Relu(),
        bias=jnp.zeros(width),
    )


def train_memories(
    starts: Sequence[Memory],
    associations: Sequence[Associations],
    protocol: MemoryProtocol,
    report: Report | None = None,
) -> list[TrainedMemory]:
    """Trains several memories of one shape at once, each on its own associations.

    Args:
        starts: the weights to begin with.
        associations: what each should store; all of one size.
        protocol: how.
        report: told after every check how many steps were done, and the smallest accuracy.

    Returns:
        The runs, in the order of the starts. They do not disturb each other: one that ends,
        well or not, is kept as it was while the others go on.

    Raises:
        FactmemError: not one set of associations a memory, or different shapes.
    """
    if len(starts) != len(associations) or not starts:
        raise FactmemError("training needs one set of associations for each memory, at least one")
    memories, data = _stacked(starts), _stacked(associations)
    state = jax.vmap(_ADAM.init)(memories)
    rate = jnp.asarray(protocol.learning_rate)
    ended: dict[int, TrainedMemory] = {}
    best = np.zeros(len(starts))
    between = protocol.steps // protocol.checks
    for check in range(1, protocol.checks + 1):
        for piece in _pieces(between):
            memories, state = _train(memories, state, data, rate, piece)
        losses, accuracies = (np.asarray(found, float) for found in _measure(memories, data))
        best = np.maximum(best, accuracies)
        for run in set(range(len(starts))) - set(ended):
            outcome = _outcome(protocol, check, float(losses[run]), float(accuracies[run]))
            if outcome is not None:
                ended[run] = TrainedMemory(
                    memory=jax.tree.map(lambda leaf, run=run: leaf[run], memories),
                    accuracy=float(accuracies[run]),
                    best_accuracy=float(best[run]),
                    loss=float(losses[run]),
                    steps=check * between,
                    outcome=outcome,
                )
        if report is not None:
            report(check * between, accuracy=float(best.min()))
        if len(ended) == len(starts):
            break
    return [ended[run] for run in range(len(starts))]


_ADAM = optax.scale_by_adam()


def _outcome(
    protocol: MemoryProtocol, check: int, loss: float, accuracy: float
) -> TrainingOutcome | None:
    if not np.isfinite(loss):
        return TrainingOutcome.DIVERGED
    if accuracy >= protocol.criterion:
        return TrainingOutcome.REACHED
    return TrainingOutcome.STEPS if check == protocol.checks else None


@partial(jax.jit, static_argnames="steps", donate_argnums=(0, 1))
def _train(memories: Any, state: Any, data: Any, rate: Float[Array, ""], steps: int) -> Any:
    def step(carry: Any, _: None) -> tuple[Any, None]:
        memory, state, associations = carry
        slope = jax.grad(_loss)(memory, associations)
        # optax mixes its own float32 counters in; nothing else may promote types silently.
        with jax.numpy_dtype_promotion("standard"):
            update, state = _ADAM.update(slope, state)
        memory = jax.tree.map(lambda weight, change: weight - rate * change, memory, update)
        return (memory, state, associations), None

    def run(memory: Any, state: Any, associations: Any) -> tuple[Any, Any]:
        (memory, state, _), _ = jax.lax.scan(step, (memory, state, associations), length=steps)
        return memory, state

    return jax.vmap(run)(memories, state, data)


@jax.jit
def _measure(memories: Any, data: Any) -> tuple[Array, Array]:
    def measure(memory: Memory, associations: Associations) -> tuple[Array, Array]:
        outputs = jax.vmap(memory)(associations.keys)
        right = recalled(outputs, associations.values, associations.target)
        return _loss(memory, associations), jnp.mean(right, dtype=jnp.float32)

    return jax.vmap(measure)(memories, data)


def _loss(memory: Memory, associations: Associations) -> Float[Array, ""]:
    outputs = jax.vmap(memory)(associations.keys)
    losses = loss_of_each(cross_entropy_of_one, outputs, associations.values, associations.target)
    return jnp.mean(losses)


def _pieces(steps: int) -> list[int]:
    whole, rest = divmod(steps, _STEPS_AT_ONCE)
    return [_STEPS_AT_ONCE] * whole + [rest] * (rest > 0)


def _stacked(modules: Sequence[eqx.Module]) -> Any:
    try:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *modules)
    except (ValueError, TypeError):
        raise FactmemError("runs that are trained together have the same shape") from None
