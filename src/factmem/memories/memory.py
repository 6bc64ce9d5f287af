"""The interface of all memories."""

from abc import abstractmethod
from dataclasses import dataclass
from math import log2

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from factmem.memories.associations import Associations
from factmem.memories.decoding import Margins, all_margins, decode, smallest_margins

__all__ = ["Memory", "Score"]

_BLOCK_KEYS = 1024


class Memory(eqx.Module):
    """A map F from keys to vectors, decoded by argmax over y of ⟨u_y, F(e)⟩.

    Subclasses implement `__call__` for one key. All their arrays are weights and count as
    parameters.
    """

    @abstractmethod
    def __call__(self, query: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Compute F(e) for one key e."""

    @property
    def parameters(self) -> int:
        """The number of weights; keys and values are not counted."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array)))

    def outputs(self, keys: Float[Array, "facts dim"]) -> Float[Array, "facts dim"]:
        """Compute F(e) for all keys, in blocks."""
        return _outputs(self, keys)

    def recall(
        self, keys: Float[Array, "facts dim"], values: Float[Array, "outputs dim"]
    ) -> Int[Array, " facts"]:
        """Decode every key: argmax over y of ⟨u_y, F(e)⟩."""
        return _recall(self, keys, values)

    def margins(self, associations: Associations) -> Float[Array, "facts outputs"]:
        """Compute all N × M margins γ_xy = (u_f*(x) − u_y)·F(e_x), infinite at y = f*(x)."""
        return _all_margins(self, associations)

    def smallest_margins(self, associations: Associations) -> Margins:
        """Compute the smallest margin and relative margin of every key, in blocks."""
        return _smallest_margins(self, associations)

    def score(self, associations: Associations) -> "Score":
        """Compute accuracy and margins on these associations."""
        margin, relative = map(np.asarray, self.smallest_margins(associations))
        return Score(
            facts=associations.facts,
            outputs=associations.outputs,
            parameters=self.parameters,
            accuracy=float(np.mean(margin > 0)),
            min_margin=float(margin.min()),
            min_relative_margin=float(relative.min()),
        )


@dataclass(frozen=True)
class Score:
    """Accuracy and margins of a memory.

    Args:
        facts, outputs: N and M.
        parameters: the number of weights.
        accuracy: the fraction of keys whose answer has the largest score; ties count as errors.
        min_margin: the smallest γ_xy; infinite if there is only one output.
        min_relative_margin: the smallest γ_xy / (‖F(e_x)‖ ‖u_f*(x) − u_y‖).
    """

    facts: int
    outputs: int
    parameters: int
    accuracy: float
    min_margin: float
    min_relative_margin: float

    @property
    def bits(self) -> float:
        """log2 M for every recalled association."""
        return round(self.accuracy * self.facts) * log2(self.outputs)

    @property
    def bits_per_parameter(self) -> float:
        """Bits per parameter, for argmax answers rather than log-loss."""
        return self.bits / self.parameters


@eqx.filter_jit
def _outputs(memory: Memory, keys: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(memory, keys, batch_size=min(_BLOCK_KEYS, keys.shape[0]))


@eqx.filter_jit
def _recall(memory: Memory, keys: Array, values: Array) -> Array:
    return decode(_outputs(memory, keys), values)


@eqx.filter_jit
def _all_margins(memory: Memory, associations: Associations) -> Array:
    outputs = _outputs(memory, associations.keys)
    return all_margins(outputs, associations.values, associations.target)


@eqx.filter_jit
def _smallest_margins(memory: Memory, associations: Associations) -> Margins:
    outputs = _outputs(memory, associations.keys)
    return smallest_margins(outputs, associations.values, associations.target)
