"""What a memory stores: N keys, M values, and which value belongs to which key."""

from collections.abc import Callable
from math import log2
from typing import Any, Literal

import equinox as eqx
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
    """Pairs to remember: the key e_x belongs to the value u_f*(x).

    Args:
        keys: e_x, one row an association.
        values: u_y, one row a possible answer; answers are decoded over all of them.
        target: f*(x), the row of `values` that belongs to each key.

    Raises:
        FactmemError: shapes that do not fit, numbers that are not finite, or an answer that is no
            row of `values`.

    Examples:
        >>> import jax.random as jr
        >>> pairs = Associations.draw(jr.key(0), facts=64, dim=32)
        >>> pairs.facts, pairs.outputs, pairs.dim, pairs.bits
        (64, 64, 32, 384.0)
    """

    keys: Float[Array, "facts dim"] = eqx.field(converter=_as_floats)
    values: Float[Array, "outputs dim"] = eqx.field(converter=_as_floats)
    target: Int[Array, " facts"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        keys, values, target = self.keys.shape, self.values.shape, self.target.shape
        if len(keys) != 2 or len(values) != 2 or 0 in (*keys, *values):
            raise FactmemError("keys and values are matrices with at least one row and one column")
        if keys[1] != values[1]:
            raise FactmemError(f"keys have {keys[1]} dimensions, but values have {values[1]}")
        if target != keys[:1]:
            raise FactmemError(f"{keys[0]} keys need a target of {keys[0]} entries, not {target}")
        if not jnp.issubdtype(self.target.dtype, jnp.integer):
            raise FactmemError("a target is a whole number for each key: the row of its value")
        if any(isinstance(part, Tracer) for part in (self.keys, self.values, self.target)):
            return
        if not (np.isfinite(self.keys).all() and np.isfinite(self.values).all()):
            raise FactmemError("keys and values are finite numbers throughout")
        rows = np.asarray(self.target)
        if rows.min() < 0 or rows.max() >= values[0]:
            raise FactmemError(f"the target names values from 0 to {values[0] - 1} and no others")

    @classmethod
    def draw(
        cls,
        key: Key[Array, ""],
        facts: int,
        dim: int,
        outputs: int | None = None,
        target: Target | None = None,
        embedding: Callable[[Key[Array, ""], int, int], Float[Array, "count dim"]] = sphere,
    ) -> "Associations":
        """Random keys and values, independent of each other.

        Args:
            key: randomness.
            facts: N.
            dim: d.
            outputs: M; N unless given.
            target: which f*, see `draw_target`; unless given, the identity where values suffice
                and blocks where keys must share them.
            embedding: how vectors are drawn; on the unit sphere unless given.

        Raises:
            FactmemError: a size below 1, or a target that needs other sizes.
        """
        outputs = facts if outputs is None else outputs
        if min(facts, dim, outputs) < 1:
            raise FactmemError(
                f"associations need at least one fact, one output and one dimension, "
                f"not {facts}, {outputs} and {dim}"
            )
        target = target or ("identity" if outputs >= facts else "blocks")
        key_key, value_key, target_key = jr.split(key, 3)
        return cls(
            keys=embedding(key_key, facts, dim),
            values=embedding(value_key, outputs, dim),
            target=draw_target(target_key, facts, outputs, target),
        )

    @property
    def facts(self) -> int:
        """N, the number of keys."""
        return self.keys.shape[0]

    @property
    def outputs(self) -> int:
        """M, the number of values over which an answer is decoded."""
        return self.values.shape[0]

    @property
    def dim(self) -> int:
        """d, the dimension of keys and values."""
        return self.keys.shape[1]

    @property
    def answers(self) -> Float[Array, "facts dim"]:
        """u_f*(x), the value of every key."""
        return self.values[self.target]

    @property
    def bits(self) -> float:
        """N · log2 M, the information in an arbitrary map from keys to values."""
        return self.facts * log2(self.outputs)

    @property
    def injective(self) -> bool:
        """Whether no two keys share a value, which Theorem 1 assumes."""
        return np.unique(np.asarray(self.target)).size == self.facts


def draw_target(
    key: Key[Array, ""], facts: int, outputs: int, target: Target
) -> Int[Array, "{facts}"]:
    """A map f* from N keys to M values.

    `identity`: f*(x) = x; `permutation`: distinct random values; both are injective. `blocks`:
    f*(x) = ⌊x M/N⌋, as the authors' experiments have it: about N/M keys to each value.

    Raises:
        FactmemError: more distinct values asked for than there are, or an unknown target.
    """
    if target not in TARGETS:
        raise FactmemError(f"no target '{target}'; there are {', '.join(TARGETS)}")
    places = np.arange(facts)
    if target == "blocks":
        return jnp.asarray(places * outputs // facts)
    if outputs < facts:
        raise FactmemError(
            f"{facts} facts cannot have distinct answers among {outputs} outputs; "
            f"give at least {facts} outputs, or take the target 'blocks'"
        )
    return jnp.asarray(places) if target == "identity" else jr.permutation(key, outputs)[:facts]
