"""Facts with different answers that no head distinguishes, and a penalty that separates them.

Where every head reads the same tokens for two facts, their inputs to the rest of the network are
equal up to attention weights like exp(−10), and so are the gradients that could change this.
The penalty acts on the scores themselves, whose gradients do not vanish.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from factmem.transformer.compiler.known_inputs import (
    AnyArray,
    FitData,
    FittedWeights,
    attention_outputs,
)

__all__ = ["ConfusedPairs", "confused_pairs", "separation_penalty"]

_MAX_PAIRS = 32
_TOLERANCE = 1e-2
"""Distance of F_MHSA of confused facts, relative to the mean distance of facts."""
_NEIGHBORS = 8
_BLOCK_ENTRIES = 2**21
_LOW = -1e6
_GAP = 2.0
"""By how many nats a token of one of two facts has to score above what they share, in some head."""


class ConfusedPairs(NamedTuple):
    """Pairs of facts, in a fixed number.

    Args:
        known: subject, relation and EOS of both facts of every pair.
        present: whether there is such a pair.
    """

    known: Int[AnyArray, "pairs 2 3"]
    present: Bool[AnyArray, " pairs"]

    @classmethod
    def none(cls) -> "ConfusedPairs":
        """Return no pairs."""
        zeros = np.zeros((_MAX_PAIRS, 2, 3), np.int32)
        return cls(jnp.asarray(zeros), jnp.zeros(_MAX_PAIRS, bool))


def confused_pairs(
    weights: FittedWeights, data: FitData, *, rng: np.random.Generator
) -> ConfusedPairs:
    """Find up to 32 pairs of facts with different answers and nearly equal attention outputs.

    Facts are sorted by a random projection, so that near facts are near in this order.
    """
    known, target = np.asarray(data.known), np.asarray(data.target)
    facts, dim = len(known), data.outputs.shape[1]
    rows = min(facts, max(1, _BLOCK_ENTRIES // (3 * weights.value.shape[0])))
    outputs = np.empty((facts, dim), np.float32)
    for start in range(0, facts, rows):
        first = min(start, facts - rows)
        inputs = data._replace(known=known[first : first + rows])
        outputs[first : first + rows] = np.asarray(_attention_outputs(weights, inputs))
    spread = np.sqrt(2 * np.sum(np.var(outputs, axis=0)))
    order = np.argsort(outputs @ rng.normal(size=dim).astype(np.float32))
    pairs = []
    for offset in range(1, min(_NEIGHBORS + 1, facts)):
        left, right = order[:-offset], order[offset:]
        distances = np.linalg.norm(outputs[left] - outputs[right], axis=1)
        near = (distances < _TOLERANCE * spread) & (target[left] != target[right])
        pairs.append(np.stack([left[near], right[near]], axis=1))
    chosen = np.concatenate(pairs)[:_MAX_PAIRS] if pairs else np.empty((0, 2), np.int64)
    result, present = np.zeros((_MAX_PAIRS, 2, 3), np.int32), np.arange(_MAX_PAIRS) < len(chosen)
    result[: len(chosen)] = known[chosen]
    return ConfusedPairs(jnp.asarray(result), jnp.asarray(present))


_attention_outputs = jax.jit(attention_outputs)


def separation_penalty(
    key: Float[Array, "heads dim"],
    tokens: Float[Array, "prompt_tokens dim"],
    pairs: ConfusedPairs,
) -> Float[Array, ""]:
    """Sum the squared violations of the gap over pairs, each in the head that is nearest to it."""
    left, right = jnp.asarray(pairs.known[:, 0]), jnp.asarray(pairs.known[:, 1])
    scores = jnp.asarray(tokens)[pairs.known] @ key.T  # [pairs, 2, 3, heads]
    common = (left == right)[:, :, None]
    highest = jnp.max(scores, axis=1)
    own = jnp.max(jnp.where(common, _LOW, highest), axis=1)
    shared = jnp.max(jnp.where(common, highest, _LOW), axis=1)
    violations = jnp.maximum(0.0, _GAP - jnp.max(own - shared, axis=1))
    return jnp.sum(jnp.where(pairs.present, violations**2, 0.0))
