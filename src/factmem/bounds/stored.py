"""How many bits a given model holds of what it was to store, and what they cost in weights.

Two counts, both worth knowing: *argmax bits* are those of every answer that wins, whatever its
margin; *log-loss bits* are what the model's probabilities save over guessing, Σ (log2 M − loss).
The second are information in the sense of Theorem 7: a model of B bits has at most B of them. The
scores of a construction have no scale of their own, so they are taken at the best one: one number.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.optimize import minimize_scalar

from factmem.facts.prompts import PromptDistribution
from factmem.memories.associations import Associations
from factmem.memories.decoding import cross_entropy_of_one, loss_of_each, recalled
from factmem.memories.memory import Memory
from factmem.memories.precision import bits_needed, fewest_bits, rounded
from factmem.transformer.model import Transformer
from factmem.transformer.recall import recall

__all__ = ["StoredBits", "stored_by_memory", "stored_by_transformer"]

_LN2 = float(np.log(2))
_SCALES = (-12.0, 20.0)
"""ln of the scales among which the best is looked for, in units of one over the mean score."""


@dataclass(frozen=True)
class StoredBits:
    """What a model holds.

    Args:
        facts: how many it was to store.
        parameters: its weights; embeddings are given, and not counted.
        accuracy: the share of the facts that it recalls.
        argmax_bits: of all answers that win.
        log_loss_bits: that its probabilities save over guessing, at the scale given.
        scale: what its scores are multiplied by.
        bits_per_weight: the fewest at which it recalls what was asked for, everything or a smaller
            share, and at all larger numbers; None if it does not.
    """

    facts: int
    parameters: int
    accuracy: float
    argmax_bits: float
    log_loss_bits: float
    scale: float
    bits_per_weight: int | None

    @property
    def argmax_bits_per_parameter(self) -> float:
        """Argmax bits over weights."""
        return self.argmax_bits / self.parameters

    @property
    def log_loss_bits_per_parameter(self) -> float:
        """Log-loss bits over weights."""
        return self.log_loss_bits / self.parameters

    @property
    def weight_bits(self) -> int | None:
        """Bits used: weights times the bits that each needs."""
        return None if self.bits_per_weight is None else self.parameters * self.bits_per_weight

    @property
    def share(self) -> float | None:
        """Bits stored over bits used. On average over random maps that are recalled entirely it is
        at most 1, by Theorem 7."""
        return None if self.weight_bits is None else self.argmax_bits / self.weight_bits


class _Scored(NamedTuple):
    """Outputs of a model, what they are decoded over, the right answers, and bits of each."""

    outputs: Float[Array, "facts dim"]
    values: Float[Array, "outputs dim"]
    target: Int[Array, " facts"]
    bits: Float[np.ndarray, " facts"]


def stored_by_memory(
    memory: Memory,
    associations: Associations,
    scale: float | None = None,
    criterion: float = 1.0,
) -> StoredBits:
    """The bits that a memory holds, log2 M for each association.

    Args:
        memory: what is asked.
        associations: what it was to store.
        scale: of its scores; the best if left out.
        criterion: the share that must be recalled with weights of few bits.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.memories import hebbian
        >>> pairs = Associations.draw(jr.key(0), facts=64, dim=64)
        >>> held = stored_by_memory(hebbian(pairs), pairs)
        >>> held.argmax_bits, held.bits_per_weight
        (384.0, 1)
    """
    bits = np.full(associations.facts, np.log2(associations.outputs))
    outputs = memory.outputs(associations.keys)
    scored = _Scored(outputs, associations.values, associations.target, bits)
    right = np.asarray(recalled(*scored[:3]))
    used, loss = _at_scale(scored, scale)
    return StoredBits(
        facts=associations.facts,
        parameters=memory.parameters,
        accuracy=float(right.mean()),
        argmax_bits=float(bits @ right),
        log_loss_bits=float(bits.sum() - loss),
        scale=used,
        bits_per_weight=bits_needed(memory, associations, criterion),
    )


def stored_by_transformer(
    model: Transformer,
    asked: PromptDistribution,
    key: Key[Array, ""],
    scale: float | None = None,
    prompts: int = 8,
    criterion: float = 1.0,
    worst_noise: bool = True,
) -> StoredBits:
    """The bits that a transformer holds, log2 |A_r| for each fact of relation r.

    That is what a fact tells whoever knows the relations' answers: a model gets no credit for which
    relation an answer belongs to, which is the same for all subjects.

    Args:
        model: what is asked.
        asked: the facts, and the noise around them.
        key: randomness of the noise.
        scale: of its scores; the best if left out.
        prompts: how many ask for each fact; it is recalled if its answer wins in all of them, and
            in the worst prompts too.
        criterion: the share that must be recalled with weights of few bits.
        worst_noise: if not, accuracy is the share of the sampled prompts, as training counts it,
            and the worst prompts are left out.
    """
    table = asked.table
    sizes = table.answers_of_relations[table.fact_ids[1]]
    every = jnp.tile(jnp.arange(asked.facts, dtype=jnp.int32), prompts)
    sampled = asked.ask(key, every, form="counts")
    bits = np.tile(np.log2(sizes), prompts)
    target = model.targets(sampled.answers)
    outputs = eqx.filter_jit(type(model).__call__)(model, sampled.content)
    used, loss = _at_scale(_Scored(outputs, model.embeddings.outputs, target, bits), scale)

    def accuracy(model: Transformer) -> float:
        found = recall(model, asked, key, prompts)
        return found.accuracy if worst_noise else found.sampled_accuracy

    right = accuracy(model)
    return StoredBits(
        facts=asked.facts,
        parameters=model.shape.parameters,
        accuracy=right,
        argmax_bits=right * float(np.log2(sizes).sum()),
        log_loss_bits=float(bits.sum() - loss) / prompts,
        scale=used,
        bits_per_weight=fewest_bits(lambda bits: accuracy(_coarse(model, bits)), criterion),
    )


def _coarse(model: Transformer, bits: int) -> Transformer:
    """The same with weights of few bits; embeddings are given, and stay."""
    return eqx.tree_at(lambda whole: whole.weights, model, rounded(model.weights, bits))


def _at_scale(scored: _Scored, scale: float | None) -> tuple[float, float]:
    """A scale, the best if none is given, and the loss in bits of all facts at it."""
    if scale is not None:
        return scale, _loss(scored, scale)
    size = float(jnp.mean(jnp.linalg.norm(scored.outputs, axis=1)))
    unit = 1 / size if size > 0 else 1.0
    # The loss is convex in the scale, and log M for each fact at 0.
    best = minimize_scalar(
        lambda power: _loss(scored, unit * float(np.exp(power))),
        bounds=_SCALES,
        method="bounded",
        options={"xatol": 1e-3},
    )
    found = unit * float(np.exp(best.x))
    guess = len(scored.bits) * float(np.log2(scored.values.shape[0]))
    return (found, float(best.fun)) if best.fun < guess else (0.0, guess)


def _loss(scored: _Scored, scale: float) -> float:
    scaled = scored.outputs * jnp.asarray(scale, scored.outputs.dtype)
    losses = _losses(scaled, scored.values, scored.target)
    return float(np.asarray(losses, np.float64).sum()) / _LN2


@jax.jit
def _losses(outputs: Array, values: Array, target: Array) -> Array:
    """In nats."""
    return loss_of_each(cross_entropy_of_one, outputs, values, target)
