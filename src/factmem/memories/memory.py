"""The contract of every memory: what it can be asked once it is built."""

from abc import abstractmethod
from dataclasses import dataclass
from math import log2

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from factmem.memories.associations import Associations
from factmem.memories.decoding import Margins, decode, margins_in_full, smallest_margins

__all__ = ["Memory", "Score"]

_KEYS_AT_ONCE = 1024


class Memory(eqx.Module):
    """A map F from keys to vectors, read out by argmax over y of ⟨u_y, F(e)⟩.

    A memory says what it does to one key; everything else follows from that. Its arrays are its
    weights, all of them counted.
    """

    @abstractmethod
    def __call__(self, key: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """F(e) for one key e."""

    @property
    def parameters(self) -> int:
        """All numbers that the memory keeps. Keys and values are given, not kept."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array)))

    def outputs(self, keys: Float[Array, "facts dim"]) -> Float[Array, "facts dim"]:
        """F(e) for all keys, a block of them at a time."""
        return _outputs(self, keys)

    def recall(
        self, keys: Float[Array, "facts dim"], values: Float[Array, "outputs dim"]
    ) -> Int[Array, " facts"]:
        """The answer to every key: argmax over y of ⟨u_y, F(e)⟩."""
        return _recall(self, keys, values)

    def margins(self, associations: Associations) -> Float[Array, "facts outputs"]:
        """All γ_xy = (u_f*(x) − u_y)·F(e_x), infinite at y = f*(x): N·M numbers."""
        return _all_margins(self, associations)

    def smallest_margins(self, associations: Associations) -> Margins:
        """The smallest margin of every key, plain and relative; never N·M numbers at once."""
        return _smallest_margins(self, associations)

    def score(self, associations: Associations) -> "Score":
        """Accuracy and margins on these associations."""
        margin, relative = map(np.asarray, self.smallest_margins(associations))
        return Score(
            facts=associations.facts,
            outputs=associations.outputs,
            parameters=self.parameters,
            accuracy=float(np.mean(margin > 0)),
            min_margin=float(margin.min()),
            relative_margin=float(relative.min()),
        )


@dataclass(frozen=True)
class Score:
    """How well a memory recalls.

    Args:
        facts, outputs: N and M.
        parameters: all numbers that the memory keeps.
        accuracy: the share of keys whose answer beats every other; a tie is no recall.
        min_margin: the smallest γ_xy; infinite if there is one output only.
        relative_margin: the smallest γ_xy / (‖F(e_x)‖ ‖u_f*(x) − u_y‖).
    """

    facts: int
    outputs: int
    parameters: int
    accuracy: float
    min_margin: float
    relative_margin: float

    @property
    def bits(self) -> float:
        """log2 M for every association recalled."""
        return round(self.accuracy * self.facts) * log2(self.outputs)

    @property
    def bits_per_parameter(self) -> float:
        """Bits over parameters; bits of arg-max answers, not of log-loss."""
        return self.bits / self.parameters


@eqx.filter_jit
def _outputs(memory: Memory, keys: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(memory, keys, batch_size=min(_KEYS_AT_ONCE, keys.shape[0]))


@eqx.filter_jit
def _recall(memory: Memory, keys: Array, values: Array) -> Array:
    return decode(_outputs(memory, keys), values)


@eqx.filter_jit
def _all_margins(memory: Memory, associations: Associations) -> Array:
    outputs = _outputs(memory, associations.keys)
    return margins_in_full(outputs, associations.values, associations.target)


@eqx.filter_jit
def _smallest_margins(memory: Memory, associations: Associations) -> Margins:
    outputs = _outputs(memory, associations.keys)
    return smallest_margins(outputs, associations.values, associations.target)
