"""The exact pass over all answers: every fact's smallest margin and its hardest answers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from factmem.transformer.compiler.known_inputs import FitData, FittedWeights, model_outputs

__all__ = ["hardest_answers"]

_HARD_ANSWERS = 16
_BLOCK_ENTRIES = 2**21
"""Logits of a block in the exact pass. 2²³ leave the cache: 12 s instead of 5 for 54,031 facts and
27,992 answers."""


def hardest_answers(
    weights: FittedWeights, data: FitData, *, rng: np.random.Generator
) -> tuple[Int[Array, "facts hard"], Float[np.ndarray, " facts"]]:
    """Find hard wrong answers of every fact, and its smallest margin over all answers.

    Answers are split at random into 16 groups; the result has the wrong answer with the highest
    logit of each group. Facts are processed in blocks of at most 2²¹ logits.
    """
    facts, answers = len(data.known), len(data.outputs)
    groups = min(_HARD_ANSWERS, answers)
    order = rng.permutation(answers)
    position = np.argsort(order).astype(np.int32)
    padding = -answers % groups
    outputs = jnp.asarray(data.outputs)
    table = jnp.concatenate([outputs[order], jnp.zeros((padding, outputs.shape[1]), outputs.dtype)])
    rows = min(facts, max(1, _BLOCK_ENTRIES // len(table)))
    margins, hardest = np.empty(facts, np.float32), np.empty((facts, groups), np.int64)
    target = position[np.asarray(data.target)]
    known = np.asarray(data.known)
    for start in range(0, facts, rows):
        stop = min(start + rows, facts)
        first = stop - rows  # the last block overlaps the one before: all have the same shape
        inputs = data._replace(known=known[first:stop], outputs=table, target=target[first:stop])
        block = _hardest_in_groups(weights, inputs, groups, answers)
        margins[first:stop], hardest[first:stop] = map(np.asarray, block)
    # With few answers a group may hold the right answer alone; it is masked later.
    return jnp.asarray(order[np.clip(hardest, 0, answers - 1)], jnp.int32), margins


@partial(jax.jit, static_argnames=("groups", "answers"))
def _hardest_in_groups(
    weights: FittedWeights, data: FitData, groups: int, answers: int
) -> tuple[Array, Array]:
    outputs = model_outputs(weights, data)
    table, target = jnp.asarray(data.outputs), jnp.asarray(data.target)
    logits = outputs @ table.T
    right = jnp.sum(outputs * table[target], axis=1)
    columns = jnp.arange(table.shape[0], dtype=jnp.int32)
    excluded = (columns[None, :] == target[:, None]) | (columns >= answers)[None, :]
    logits = jnp.where(excluded, -jnp.inf, logits).reshape(len(outputs), groups, -1)
    highest = jnp.max(logits, axis=2)
    # Faster than argmax, which XLA does not vectorize.
    indices = columns.reshape(1, groups, -1)
    hardest = jnp.max(jnp.where(logits == highest[:, :, None], indices, -1), axis=2)
    return right - jnp.max(highest, axis=1), hardest
