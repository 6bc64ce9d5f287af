"""Associations: N keys, M values, and the value that belongs to each key."""

from collections.abc import Callable
from math import log2
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key

from factmem._core.errors import FactmemError
from factmem.memories.embeddings import sphere

__all__ = ["TARGETS", "Associations", "Target", "draw_target"]

Target = Literal["identity", "permutation", "blocks"]
TARGETS: tuple[Target, ...] = ("identity", "permutation", "blocks")


def _as_floats(vectors: Any) -> Array:
    vectors = jnp.asarray(vectors)
    floating = jnp.issubdtype(vectors.dtype, jnp.floating)
    return vectors if floating else vectors.astype(jnp.float32)


class Associations(eqx.Module):
    """Pairs of keys e_x and values u_f*(x) to store.

    Args:
        keys: e_x, one row per association.
        values: u_y, one row per possible answer; decoding takes the argmax over all of them.
        target: f*(x), the row of `values` that belongs to each key.

    Raises:
        FactmemError: shapes do not match, numbers are not finite, or a target is not a row of
            `values`.

    Examples:
        >>> import jax.random as jr
        >>> pairs = Associations.draw(facts=64, dim=32, key=jr.key(0))
        >>> pairs.facts, pairs.outputs, pairs.dim, pairs.bits
        (64, 64, 32, 384.0)
    """

    keys: Float[Array, "facts dim"] = eqx.field(converter=_as_floats)
    values: Float[Array, "outputs dim"] = eqx.field(converter=_as_floats)
    target: Int[Array, " facts"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        keys, values, target = self.keys.shape, self.values.shape, self.target.shape
        if len(keys) != 2 or len(values) != 2 or 0 in (*keys, *values):
            raise FactmemError(
                f"keys and values must be non-empty matrices, got shapes {keys} and {values}"
            )
        if keys[1] != values[1]:
            raise FactmemError(
                f"keys have {keys[1]} dimensions, but values have {values[1]}; they must be equal"
            )
        if target != keys[:1]:
            raise FactmemError(f"the target must have shape ({keys[0]},), got {target}")
        if not jnp.issubdtype(self.target.dtype, jnp.integer):
            raise FactmemError(f"the target must be an array of integers, got {self.target.dtype}")
        if any(isinstance(part, Tracer) for part in (self.keys, self.values, self.target)):
            return
        if not (np.isfinite(self.keys).all() and np.isfinite(self.values).all()):
            raise FactmemError("keys and values must be finite")
        rows = np.asarray(self.target)
        if rows.min() < 0 or rows.max() >= values[0]:
            raise FactmemError(
                f"targets must be from 0 to {values[0] - 1}, got {rows.min()} to {rows.max()}"
            )

    @classmethod
    def draw(
        cls,
        facts: int,
        dim: int,
        outputs: int | None = None,
        target: Target | None = None,
        embedding: Callable[..., Float[Array, "count dim"]] = sphere,
        *,
        key: Key[Array, ""],
    ) -> "Associations":
        """Draw independent random keys and values.

        Args:
            facts: N.
            dim: d.
            outputs: M; N by default.
            target: the map f*, see `draw_target`; by default the identity if M ≥ N, else blocks.
            embedding: draws vectors as `embedding(count, dim, key=key)`; `sphere` by default.
            key: the random key.

        Raises:
            FactmemError: a size is below 1, or the target needs other sizes.
        """
        outputs = facts if outputs is None else outputs
        if min(facts, dim, outputs) < 1:
            raise FactmemError(
                f"facts, dim and outputs must be at least 1, got {facts}, {dim} and {outputs}"
            )
        target = target or ("identity" if outputs >= facts else "blocks")
        keys_key, values_key, target_key = jr.split(key, 3)
        return cls(
            keys=embedding(facts, dim, key=keys_key),
            values=embedding(outputs, dim, key=values_key),
            target=draw_target(facts, outputs, target, key=target_key),
        )

    @property
    def facts(self) -> int:
        """N, the number of keys."""
        return self.keys.shape[0]

    @property
    def outputs(self) -> int:
        """M, the number of values."""
        return self.values.shape[0]

    @property
    def dim(self) -> int:
        """d, the dimension of keys and values."""
        return self.keys.shape[1]

    @property
    def answers(self) -> Float[Array, "facts dim"]:
        """u_f*(x), the value of every key."""
        return _take_rows(self.values, self.target)

    @property
    def bits(self) -> float:
        """N · log2 M, the information in an arbitrary map from keys to values, in bits."""
        return self.facts * log2(self.outputs)

    @property
    def injective(self) -> bool:
        """Whether no two keys share a value, as Theorem 1 assumes."""
        return np.unique(np.asarray(self.target)).size == self.facts


@jax.jit
def _take_rows(vectors: Float[Array, "rows dim"], rows: Int[Array, " count"]) -> Array:
    return vectors[rows]


def draw_target(
    facts: int, outputs: int, target: Target, *, key: Key[Array, ""]
) -> Int[Array, "{facts}"]:
    """Draw a map f* from N keys to M values.

    `identity`: f*(x) = x; `permutation`: distinct random values; both are injective. `blocks`:
    f*(x) = ⌊x M/N⌋, as in the authors' experiments, with about N/M keys per value.

    Raises:
        FactmemError: an injective target with M < N, or an unknown target.
    """
    if target not in TARGETS:
        raise FactmemError(f"target must be one of {', '.join(TARGETS)}, got '{target}'")
    indices = np.arange(facts)
    if target == "blocks":
        return jnp.asarray(indices * outputs // facts)
    if outputs < facts:
        raise FactmemError(
            f"{facts} facts cannot have distinct answers among {outputs} outputs; outputs must be "
            f"at least {facts}, or the target 'blocks'"
        )
    return jnp.asarray(indices) if target == "identity" else jr.permutation(key, outputs)[:facts]
