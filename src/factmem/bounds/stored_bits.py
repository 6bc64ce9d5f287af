"""How many bits a model stores, and how many bits its weights need.

There are two counts. *Argmax bits* count every fact whose answer wins, whatever its margin.
*Log-loss bits* are what the model's probabilities save over guessing, Σ (log2 M − loss). The latter
are information in the sense of Theorem 7: a model of B bits has at most B of them. The scores of a
construction have no natural scale, so they are multiplied by the number that minimizes the loss.
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
from factmem.memories.decoding import cross_entropy_from_gaps, per_key_losses, recalled
from factmem.memories.memory import Memory
from factmem.memories.precision import bits_needed, fewest_bits, rounded
from factmem.transformer.model import Transformer
from factmem.transformer.recall import recall

__all__ = ["StoredBits", "bits_stored_by_memory", "bits_stored_by_transformer"]

_LN2 = float(np.log(2))
_LOG_SCALES = (-12.0, 20.0)
"""The interval searched for ln(scale), where the scale is in units of 1 / (mean output norm)."""


@dataclass(frozen=True)
class StoredBits:
    """The bits that a model stores.

    Args:
        facts: the number of facts that it was given to store.
        parameters: the number of weights, without the given embeddings.
        accuracy: the fraction of facts that it recalls.
        argmax_bits: the bits of all facts whose answers win.
        log_loss_bits: the bits that its probabilities save over guessing, at the scale below.
        scale: the factor by which its scores are multiplied.
        bits_per_weight: the smallest precision such that it and every larger one reach the required
            accuracy; None if no precision does.
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
        """Argmax bits per weight."""
        return self.argmax_bits / self.parameters

    @property
    def log_loss_bits_per_parameter(self) -> float:
        """Log-loss bits per weight."""
        return self.log_loss_bits / self.parameters

    @property
    def weight_bits(self) -> int | None:
        """The bits of all weights at the precision `bits_per_weight`."""
        return None if self.bits_per_weight is None else self.parameters * self.bits_per_weight

    @property
    def usage(self) -> float | None:
        """Argmax bits over weight bits.

        On average over random maps that are recalled completely it is at most 1 (Theorem 7).
        """
        return None if self.weight_bits is None else self.argmax_bits / self.weight_bits


class _ScoredFacts(NamedTuple):
    """Outputs of a model, the values that they are compared with, targets, and bits per fact."""

    outputs: Float[Array, "facts dim"]
    values: Float[Array, "outputs dim"]
    target: Int[Array, " facts"]
    bits: Float[np.ndarray, " facts"]


def bits_stored_by_memory(
    memory: Memory,
    associations: Associations,
    scale: float | None = None,
    criterion: float = 1.0,
) -> StoredBits:
    """Measure the bits that a memory stores, log2 M for each association.

    Args:
        memory: the memory.
        associations: what it was given to store.
        scale: the factor by which its scores are multiplied; None for the best one.
        criterion: the accuracy that quantized weights must reach.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.memories import hebbian
        >>> associations = Associations.draw(facts=64, dim=64, key=jr.key(0))
        >>> stored = bits_stored_by_memory(hebbian(associations), associations)
        >>> stored.argmax_bits, stored.bits_per_weight
        (384.0, 1)
    """
    bits = np.full(associations.facts, np.log2(associations.outputs))
    outputs = memory.outputs(associations.keys)
    scored = _ScoredFacts(outputs, associations.values, associations.target, bits)
    correct = np.asarray(recalled(*scored[:3]))
    scale, loss = _scale_and_loss(scored, scale)
    return StoredBits(
        facts=associations.facts,
        parameters=memory.parameters,
        accuracy=float(correct.mean()),
        argmax_bits=float(bits @ correct),
        log_loss_bits=float(bits.sum() - loss),
        scale=scale,
        bits_per_weight=bits_needed(memory, associations, criterion),
    )


def bits_stored_by_transformer(
    model: Transformer,
    prompts: PromptDistribution,
    *,
    key: Key[Array, ""],
    scale: float | None = None,
    prompts_per_fact: int = 8,
    criterion: float = 1.0,
    worst_noise: bool = True,
) -> StoredBits:
    """Measure the bits that a transformer stores, log2 |A_r| for each fact of relation r.

    A fact has this information if the answers of the relations are known: a model gets no credit
    for knowing which relation an answer belongs to, which is the same for all subjects.

    Args:
        model: the transformer.
        prompts: the facts and the prompts about them.
        key: random key for the noise.
        scale: the factor by which its scores are multiplied; None for the best one.
        prompts_per_fact: the number of sampled prompts per fact. A fact is recalled if its answer
            wins in all of them, and in the adversarial prompts.
        criterion: the accuracy that quantized weights must reach.
        worst_noise: if False, accuracy is the fraction of sampled prompts, as in training, and the
            adversarial prompts do not count.
    """
    table = prompts.table
    answers = table.answers_by_relation[table.fact_ids[1]]
    fact_ids = jnp.tile(jnp.arange(prompts.facts, dtype=jnp.int32), prompts_per_fact)
    batch = prompts.sample(fact_ids, form="counts", key=key)
    bits = np.tile(np.log2(answers), prompts_per_fact)
    target = model.targets(batch.answers)
    outputs = eqx.filter_jit(type(model).__call__)(model, batch.content)
    scored = _ScoredFacts(outputs, model.embeddings.outputs, target, bits)
    scale, loss = _scale_and_loss(scored, scale)

    def measure_accuracy(model: Transformer) -> float:
        result = recall(model, prompts, key=key, prompts_per_fact=prompts_per_fact)
        return result.accuracy if worst_noise else result.sampled_accuracy

    accuracy = measure_accuracy(model)
    return StoredBits(
        facts=prompts.facts,
        parameters=model.shape.parameters,
        accuracy=accuracy,
        argmax_bits=accuracy * float(np.log2(answers).sum()),
        log_loss_bits=float(bits.sum() - loss) / prompts_per_fact,
        scale=scale,
        bits_per_weight=fewest_bits(
            lambda bits: measure_accuracy(_quantize(model, bits)), criterion
        ),
    )


def _quantize(model: Transformer, bits: int) -> Transformer:
    """Round the weights; the given embeddings stay as they are."""
    return eqx.tree_at(lambda model: model.weights, model, rounded(model.weights, bits))


def _scale_and_loss(scored: _ScoredFacts, scale: float | None) -> tuple[float, float]:
    """Return the scale (the best one, if None is given) and the total loss of all facts in bits."""
    if scale is not None:
        return scale, _loss(scored, scale)
    norm = float(jnp.mean(jnp.linalg.norm(scored.outputs, axis=1)))
    unit = 1 / norm if norm > 0 else 1.0
    # The loss is convex in the scale; at scale 0 it is log M for each fact.
    minimum = minimize_scalar(
        lambda log_scale: _loss(scored, unit * float(np.exp(log_scale))),
        bounds=_LOG_SCALES,
        method="bounded",
        options={"xatol": 1e-3},
    )
    best_scale = unit * float(np.exp(minimum.x))
    guessing_loss = len(scored.bits) * float(np.log2(scored.values.shape[0]))
    if minimum.fun < guessing_loss:
        return best_scale, float(minimum.fun)
    return 0.0, guessing_loss


def _loss(scored: _ScoredFacts, scale: float) -> float:
    scaled = scored.outputs * jnp.asarray(scale, scored.outputs.dtype)
    losses = _losses_in_nats(scaled, scored.values, scored.target)
    return float(np.asarray(losses, np.float64).sum()) / _LN2


@jax.jit
def _losses_in_nats(outputs: Array, values: Array, target: Array) -> Array:
    return per_key_losses(cross_entropy_from_gaps, outputs, values, target)
