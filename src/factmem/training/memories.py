"""Training of associative memories by the paper's protocol: cross-entropy, Adam, full batch.

Runs of one shape are stacked and trained together. Weights, associations and the learning rate are
data, so nothing is compiled twice for one shape.
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
from factmem._core.result import Result
from factmem.memories.activations import Relu
from factmem.memories.associations import Associations
from factmem.memories.decoding import cross_entropy_from_gaps, per_key_losses, recalled
from factmem.memories.linear import LinearMemory
from factmem.memories.memory import Memory
from factmem.memories.mlp import MLPMemory, check_width
from factmem.training.protocol import MemoryProtocol
from factmem.training.status import TrainingStatus

__all__ = ["MemoryTrainingResult", "init_linear_memory", "init_mlp_memory", "train_memories"]

_CHUNK_STEPS = 32
"""Steps of one compiled call: few, so that the loop around it can report and be interrupted."""


@dataclass(frozen=True, kw_only=True)
class MemoryTrainingResult(Result[Memory]):
    """A trained memory, and how its training went.

    Args:
        model: the memory at the end of the run.
        status: why the run ended.
        accuracy: the accuracy at the end.
        best_accuracy: the largest accuracy at any evaluation, which is what the paper counts.
        loss: the mean cross-entropy at the last evaluation, in nats.
        steps: the number of steps completed.
    """

    status: TrainingStatus
    accuracy: float
    best_accuracy: float
    loss: float
    steps: int

    @property
    def metrics(self) -> dict[str, Any]:
        """Accuracy, best accuracy, loss and steps."""
        return {
            "accuracy": self.accuracy,
            "best_accuracy": self.best_accuracy,
            "loss": self.loss,
            "steps": self.steps,
        }


def init_linear_memory(dim: int, *, key: Key[Array, ""]) -> LinearMemory:
    """Draw a d × d matrix as in the authors' code: truncated normal, variance 1/d.

    Raises:
        FactmemError: `dim` is less than 1.
    """
    if dim < 1:
        raise FactmemError(f"dim must be at least 1, got {dim}")
    return LinearMemory(lecun_normal()(key, (dim, dim)).T)


def init_mlp_memory(dim: int, width: int, *, key: Key[Array, ""]) -> MLPMemory:
    """Draw a ReLU MLP as in the authors' code, with a hidden bias: 2 m d + m parameters.

    Raises:
        FactmemError: `width` is less than 1.
    """
    width = check_width(width)
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
    *,
    report: Report | None = None,
) -> list[MemoryTrainingResult]:
    """Train several memories of one shape together, each on its own associations.

    Args:
        starts: the initial memories.
        associations: what each memory should store; all of one size.
        protocol: the training protocol.
        report: called after every evaluation with the steps done and the smallest accuracy.

    Returns:
        One result for each memory, in order. The runs are independent: a run that ends, for
        whatever reason, keeps its state while the others continue.

    Raises:
        FactmemError: the numbers of memories and associations differ, or their shapes do.
    """
    if len(starts) != len(associations) or not starts:
        raise FactmemError(
            "training needs at least one memory and one set of associations for each memory, "
            f"got {len(starts)} memories and {len(associations)} sets"
        )
    memories, data = _stack(starts), _stack(associations)
    state = jax.vmap(_ADAM.init)(memories)
    rate = jnp.asarray(protocol.learning_rate)
    results: dict[int, MemoryTrainingResult] = {}
    best = np.zeros(len(starts))
    steps_per_evaluation = protocol.steps // protocol.evaluations
    for evaluation in range(1, protocol.evaluations + 1):
        for chunk in _chunks(steps_per_evaluation):
            memories, state = _train(memories, state, data, rate, chunk)
        losses, accuracies = (np.asarray(array, float) for array in _evaluate(memories, data))
        best = np.maximum(best, accuracies)
        for run in set(range(len(starts))) - set(results):
            status = _status(protocol, evaluation, float(losses[run]), float(accuracies[run]))
            if status is not None:
                results[run] = MemoryTrainingResult(
                    model=jax.tree.map(lambda leaf, run=run: leaf[run], memories),
                    status=status,
                    accuracy=float(accuracies[run]),
                    best_accuracy=float(best[run]),
                    loss=float(losses[run]),
                    steps=evaluation * steps_per_evaluation,
                )
        if report is not None:
            report(evaluation * steps_per_evaluation, accuracy=float(best.min()))
        if len(results) == len(starts):
            break
    return [results[run] for run in range(len(starts))]


_ADAM = optax.scale_by_adam()


def _status(
    protocol: MemoryProtocol, evaluation: int, loss: float, accuracy: float
) -> TrainingStatus | None:
    if not np.isfinite(loss):
        return TrainingStatus.DIVERGED
    if accuracy >= protocol.criterion:
        return TrainingStatus.CRITERION_REACHED
    return TrainingStatus.STEP_LIMIT if evaluation == protocol.evaluations else None


@partial(jax.jit, static_argnames="steps", donate_argnums=(0, 1))
def _train(memories: Any, state: Any, data: Any, rate: Float[Array, ""], steps: int) -> Any:
    def step(carry: Any, _: None) -> tuple[Any, None]:
        memory, state, associations = carry
        gradient = jax.grad(_loss)(memory, associations)
        # optax mixes in float32 counters of its own; only here may types be promoted.
        with jax.numpy_dtype_promotion("standard"):
            update, state = _ADAM.update(gradient, state)
        memory = jax.tree.map(lambda weight, change: weight - rate * change, memory, update)
        return (memory, state, associations), None

    def train_one(memory: Any, state: Any, associations: Any) -> tuple[Any, Any]:
        (memory, state, _), _ = jax.lax.scan(step, (memory, state, associations), length=steps)
        return memory, state

    return jax.vmap(train_one)(memories, state, data)


@jax.jit
def _evaluate(memories: Any, data: Any) -> tuple[Array, Array]:
    def evaluate_one(memory: Memory, associations: Associations) -> tuple[Array, Array]:
        outputs = jax.vmap(memory)(associations.keys)
        correct = recalled(outputs, associations.values, associations.target)
        return _loss(memory, associations), jnp.mean(correct, dtype=jnp.float32)

    return jax.vmap(evaluate_one)(memories, data)


def _loss(memory: Memory, associations: Associations) -> Float[Array, ""]:
    outputs = jax.vmap(memory)(associations.keys)
    losses = per_key_losses(
        cross_entropy_from_gaps, outputs, associations.values, associations.target
    )
    return jnp.mean(losses)


def _chunks(steps: int) -> list[int]:
    full_chunks, rest = divmod(steps, _CHUNK_STEPS)
    return [_CHUNK_STEPS] * full_chunks + [rest] * (rest > 0)


def _stack(modules: Sequence[eqx.Module]) -> Any:
    try:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *modules)
    except (ValueError, TypeError):
        raise FactmemError("memories that are trained together must have the same shape") from None
