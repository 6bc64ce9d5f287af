"""Facts with different answers that no head distinguishes, and a penalty that separates them.

If every head reads the same tokens for two facts, their inputs to the rest of the network are equal
up to attention weights like exp(−10), and the gradient of the cross-entropy vanishes with them. The
penalty acts on the scores themselves, whose gradients do not vanish.
"""

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
"""Distance of the F_MHSA of confused facts, relative to the root mean square over all pairs."""
_NEIGHBORS = 8
"""How many facts on either side, in the order of a random projection, each one is compared with."""
_GAP = 2.0
"""By how many nats a token that only one fact has must score above those that both have."""
_BLOCK_ENTRIES = 2**21
_LOW = -1e6
"""Below every score. An infinity would give gradients that are not numbers."""


class ConfusedPairs(NamedTuple):
    """Pairs of facts, in a fixed number.

    Args:
        known: subject, relation and EOS of both facts of every pair.
        present: whether there is such a pair; the others are padding.
    """

    known: Int[AnyArray, "pairs 2 3"]
    present: Bool[AnyArray, " pairs"]

    @classmethod
    def of(cls, known: Int[np.ndarray, "some 2 3"]) -> "ConfusedPairs":
        """Pad at most 32 pairs."""
        present = np.arange(_MAX_PAIRS) < len(known)
        padded = np.zeros((_MAX_PAIRS, 2, 3), np.int32)
        padded[: len(known)] = known
        return cls(jnp.asarray(padded), jnp.asarray(present))

    @classmethod
    def none(cls) -> "ConfusedPairs":
        """Return padding alone."""
        return cls.of(np.empty((0, 2, 3), np.int32))


def confused_pairs(
    weights: FittedWeights, data: FitData, *, rng: np.random.Generator
) -> ConfusedPairs:
    """Find up to 32 pairs of facts with different answers and nearly equal attention outputs.

    Facts are sorted by a random projection, in which near facts are near. Facts are processed in
    blocks; the outputs of all facts take 4·facts·d bytes.
    """
    known, target = np.asarray(data.known), np.asarray(data.target)
    facts, dim = len(known), data.outputs.shape[1]
    rows = min(facts, max(1, _BLOCK_ENTRIES // (3 * weights.value.size // dim)))
    outputs = np.empty((facts, dim), np.float32)
    for start in range(0, facts, rows):
        first = min(start, facts - rows)  # all blocks have the same shape
        inputs = data._replace(known=known[first : first + rows], target=target[:rows])
        outputs[first : first + rows] = np.asarray(_attention_outputs(weights, inputs))
    spread = np.sqrt(2 * np.sum(np.var(outputs, axis=0)))
    order = np.argsort(outputs @ rng.normal(size=dim).astype(np.float32))
    pairs = []
    for offset in range(1, min(_NEIGHBORS + 1, facts)):
        left, right = order[:-offset], order[offset:]
        left, right = (side[target[left] != target[right]] for side in (left, right))
        near = np.linalg.norm(outputs[left] - outputs[right], axis=1) < _TOLERANCE * spread
        pairs.append(np.stack([left[near], right[near]], axis=1))
    chosen = np.concatenate(pairs)[:_MAX_PAIRS] if pairs else np.empty((0, 2), np.int64)
    return ConfusedPairs.of(known[chosen])


_attention_outputs = jax.jit(attention_outputs)


def separation_penalty(
    key: Float[AnyArray, "heads dim"],
    tokens: Float[AnyArray, "prompt_tokens dim"],
    pairs: ConfusedPairs,
) -> Float[Array, ""]:
    """Compute the sum over pairs of the squared violation of the gap, in the best head."""
    scores = (
        jnp.asarray(tokens)[jnp.asarray(pairs.known)] @ jnp.asarray(key).T
    )  # [pairs, 2, 3, heads]
    shared = (pairs.known[:, 0] == pairs.known[:, 1])[:, :, None]
    highest = jnp.max(scores, axis=1)
    own_score = jnp.max(jnp.where(shared, _LOW, highest), axis=1)
    shared_score = jnp.max(jnp.where(shared, highest, _LOW), axis=1)
    gap = jnp.max(own_score - shared_score, axis=1)
    violations = jnp.where(jnp.asarray(pairs.present), jnp.maximum(0.0, _GAP - gap), 0.0)
    return jnp.sum(violations**2)
