"""How many bits models store, and their loss: one model per run.

Importing this module does not load jax.
"""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from factmem.experiments.memory_spec import MemorySpec
from factmem.experiments.task import Experiment
from factmem.experiments.transformer_spec import TransformerSpec

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Array, Float, Key

    from factmem.bounds.stored_bits import StoredBits
    from factmem.facts import PromptDistribution
    from factmem.transformer import Transformer

__all__ = [
    "MEMORY_BITS",
    "TRANSFORMER_BITS",
    "ZIPF_LOSS",
    "expected_loss",
    "measure_memory_bits",
    "measure_transformer_bits",
    "measure_zipf_loss",
]


def measure_memory_bits(*, criterion: float, **config: Any) -> dict[str, Any]:
    """Measure the bits that a memory stores.

    Args:
        criterion: the accuracy that must remain when weights are rounded to few bits.
        config: a `MemorySpec` as JSON data; its target is usually `uniform`.
    """
    from factmem.bounds.stored_bits import bits_stored_by_memory

    result = MemorySpec.from_config(config).run()
    stored = bits_stored_by_memory(result.model, result.instance.associations, criterion=criterion)
    return _metrics(stored)


def measure_transformer_bits(
    *, criterion: float, worst_noise: bool, **config: Any
) -> dict[str, Any]:
    """Measure the bits that a transformer stores of a random table.

    Args:
        criterion, worst_noise: what counts as recalled; see `bits_stored_by_transformer`.
        config: a `TransformerSpec` as JSON data.
    """
    from factmem.bounds.stored_bits import bits_stored_by_transformer

    result = TransformerSpec.from_config(config).run()
    instance = result.instance
    stored = bits_stored_by_transformer(
        result.model,
        instance.prompts,
        key=instance.test_key,
        criterion=criterion,
        worst_noise=worst_noise,
    )
    return {**_metrics(stored), "heads": result.model.shape.heads}


def measure_zipf_loss(*, prompts_per_fact: int, **config: Any) -> dict[str, Any]:
    """Measure the expected loss of a transformer trained on Zipf-distributed subjects.

    Training runs to its end at every learning rate, because the loss matters here, not whether a
    criterion is reached. The loss at the best rate is reported.

    Args:
        prompts_per_fact: number of fresh test prompts per fact.
        config: a `TransformerSpec` as JSON data; its method is `Train` with
            `stop_when_one_succeeds=False`.
    """
    from factmem.facts.prompts import fact_probabilities

    spec = TransformerSpec.from_config(config)
    result = spec.run()
    instance, runs = result.instance, result.built.runs
    probabilities = fact_probabilities(instance.table, spec.prompts.subject_power)
    losses = [
        expected_loss(
            run.model,
            instance.prompts,
            probabilities,
            key=instance.test_key,
            prompts_per_fact=prompts_per_fact,
        )
        for run in runs
    ]
    best = min(range(len(losses)), key=lambda index: losses[index])
    return {
        "facts": instance.table.facts,
        "parameters": result.model.shape.parameters,
        "loss_nats": losses[best],
        "loss_bits": losses[best] / math.log(2),
        "learning_rate": runs[best].learning_rate,
        "losses_nats": losses,
    }


def expected_loss(
    model: "Transformer",
    prompts: "PromptDistribution",
    probabilities: "Float[np.ndarray, ' facts']",
    *,
    key: "Key[Array, '']",
    prompts_per_fact: int,
) -> float:
    """Return the expected cross-entropy over all facts, in nats.

    Args:
        model: the transformer.
        prompts: the facts and the prompts about them.
        probabilities: the probability of every fact, in the order of `FactTable.fact_ids`.
        key: random key for the noise.
        prompts_per_fact: number of prompts per fact to average over.
    """
    import equinox as eqx
    import jax.numpy as jnp
    import numpy as np

    from factmem.memories.decoding import cross_entropy_from_gaps, per_key_losses

    fact_ids = jnp.tile(jnp.arange(prompts.facts, dtype=jnp.int32), prompts_per_fact)
    batch = prompts.sample(fact_ids, key=key, form="counts")
    outputs = eqx.filter_jit(type(model).__call__)(model, batch.content)
    target = model.targets(batch.answers)
    losses = per_key_losses(cross_entropy_from_gaps, outputs, model.embeddings.outputs, target)
    means = np.asarray(losses, np.float64).reshape(prompts_per_fact, -1).mean(axis=0)
    return float(means @ probabilities)


MEMORY_BITS = Experiment("bits of a memory", 2, measure_memory_bits)
TRANSFORMER_BITS = Experiment("bits of a transformer", 2, measure_transformer_bits)
ZIPF_LOSS = Experiment("zipf loss", 2, measure_zipf_loss)


def _metrics(stored: "StoredBits") -> dict[str, Any]:
    return {**asdict(stored), "weight_bits": stored.weight_bits, "usage": stored.usage}
