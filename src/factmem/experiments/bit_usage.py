"""What models hold and what they lose, measured: one model at a time, for the run store.

Importing this loads no jax.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from factmem.experiments.task import Experiment
from factmem.experiments.transformer_capacity import protocol_of

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Array, Float, Key

    from factmem.bounds.stored import StoredBits
    from factmem.facts import PromptDistribution
    from factmem.transformer import Shape, Transformer

__all__ = [
    "MEMORY_BITS",
    "TRANSFORMER_BITS",
    "ZIPF_LOSS",
    "TransformerMethod",
    "expected_loss",
    "measure_memory_bits",
    "measure_transformer_bits",
    "measure_zipf_loss",
]

TransformerMethod = Literal["attention", "mlp", "compiled", "trained"]


def measure_memory_bits(
    *,
    method: str,
    facts: int,
    outputs: int,
    dim: int,
    sizes: Mapping[str, int],
    criterion: float,
    seed: int,
) -> dict[str, Any]:
    """The bits that one memory holds of a random map, every f*(x) uniform on all outputs.

    Args:
        method: a name in `METHODS`.
        facts, outputs, dim: N, M and d.
        sizes: what the method needs or takes besides.
        criterion: the share that must be recalled with weights of few bits.
        seed: of embeddings, map and method.
    """
    import jax.numpy as jnp
    import jax.random as jr

    from factmem.bounds.stored import stored_by_memory
    from factmem.experiments.memory_methods import build, drawn
    from factmem.memories import Associations

    drawn_pairs, key, target_key = drawn(seed, facts, dim, outputs)
    target = jr.randint(target_key, (facts,), 0, outputs, dtype=jnp.int32)
    pairs = Associations(drawn_pairs.keys, drawn_pairs.values, target)
    memory = build(method, key, pairs, None, **sizes).memory
    return _told(stored_by_memory(memory, pairs, criterion=criterion))


def measure_transformer_bits(
    *,
    method: TransformerMethod,
    dim: int,
    heads: int | None,
    head_dim: int,
    width: int,
    block: int | None,
    subjects: int,
    relations: int,
    answers: int,
    noise: int,
    length: int,
    training: Mapping[str, Any] | None,
    criterion: float,
    worst_noise: bool,
    seed: int,
) -> dict[str, Any]:
    """The bits that one transformer holds of a random table.

    Args:
        method: `attention` (Theorem 3), `mlp` (Theorem 4), `compiled` or `trained`.
        dim, heads, head_dim, width: the shape; Theorems 3 and 4 find the heads themselves.
        block: the tokens of a head in Theorems 3 and 4.
        subjects, relations, answers: S, R and D.
        noise, length: of prompts.
        training: the numbers of the protocol, if it is trained.
        criterion, worst_noise: what counts as recalled; see `stored_by_transformer`.
        seed: of table, embeddings, method and prompts.
    """
    import jax.random as jr

    from factmem.bounds.stored import stored_by_transformer
    from factmem.facts import FactTable, PromptDistribution
    from factmem.transformer import Shape

    table = FactTable.random(subjects, relations, answers, seed=seed)
    asked = PromptDistribution.of(table, noise=noise, length=length)
    keys = jr.split(jr.key(seed), 3)
    shape = Shape(dim, heads or 1, head_dim, width)
    model = _transformer(method, keys, asked, shape, block, training)
    held = stored_by_transformer(
        model, asked, keys[2], criterion=criterion, worst_noise=worst_noise
    )
    return {**_told(held), "heads": model.shape.heads}


def measure_zipf_loss(
    *,
    subjects: int,
    relations: int,
    answers: int,
    subject_power: float,
    noise: int,
    length: int,
    dim: int,
    heads: int,
    head_dim: int,
    width: int,
    training: Mapping[str, Any],
    prompts: int,
    seed: int,
) -> dict[str, Any]:
    """The expected loss of a transformer that was trained on Zipf questions, best learning rate.

    Args:
        subjects, relations, answers: S, R and D of a random table.
        subject_power: subject s is asked for in proportion to (s + 1)^−power.
        noise, length: of prompts.
        dim, heads, head_dim, width: the shape.
        training: the numbers of the protocol; all its steps are done at every rate.
        prompts: how many of every fact the loss is taken over, beyond those of training.
        seed: of table, embeddings, weights and prompts.
    """
    import jax.random as jr

    from factmem.facts import FactTable, PromptDistribution
    from factmem.facts.prompts import question_chances
    from factmem.training import train_transformers
    from factmem.training.transformers import Run
    from factmem.transformer import Shape, Transformer

    table = FactTable.random(subjects, relations, answers, seed=seed)
    asked = PromptDistribution.of(table, noise=noise, length=length, subject_power=subject_power)
    shape, protocol = Shape(dim, heads, head_dim, width), protocol_of(training)
    keys = jr.split(jr.key(seed), 3)
    start = Transformer.draw(keys[0], shape, asked.vocabulary)
    # In no contest: every rate goes to its end, for what counts is the loss.
    runs = [Run(start, asked, rate) for rate in protocol.learning_rates]
    chances = question_chances(table, subject_power)
    found = [
        expected_loss(run.model, asked, chances, keys[2], prompts)
        for run in train_transformers(runs, protocol, keys[1])
    ]
    best = min(range(len(found)), key=lambda place: found[place])
    return {
        "facts": table.facts,
        "parameters": shape.parameters,
        "loss_nats": found[best],
        "loss_bits": found[best] / math.log(2),
        "learning_rate": protocol.learning_rates[best],
        "losses_nats": found,
    }


def expected_loss(
    model: "Transformer",
    asked: "PromptDistribution",
    chances: "Float[np.ndarray, ' facts']",
    key: "Key[Array, '']",
    prompts: int,
) -> float:
    """The cross-entropy of a question, in nats, over all facts.

    Args:
        model: what is asked.
        asked: the facts, and the noise around them.
        chances: of every fact, in the order of `FactTable.fact_ids`.
        key: randomness of the noise.
        prompts: how many of every fact it is averaged over.
    """
    import equinox as eqx
    import jax.numpy as jnp
    import numpy as np

    from factmem.memories.decoding import cross_entropy_of_one, loss_of_each

    every = jnp.tile(jnp.arange(asked.facts, dtype=jnp.int32), prompts)
    sampled = asked.ask(key, every, form="counts")
    outputs = eqx.filter_jit(type(model).__call__)(model, sampled.content)
    target = model.targets(sampled.answers)
    losses = loss_of_each(cross_entropy_of_one, outputs, model.embeddings.outputs, target)
    return float(np.asarray(losses, np.float64).reshape(prompts, -1).mean(axis=0) @ chances)


MEMORY_BITS = Experiment("bits of a memory", 1, measure_memory_bits)
TRANSFORMER_BITS = Experiment("bits of a transformer", 1, measure_transformer_bits)
ZIPF_LOSS = Experiment("zipf loss", 1, measure_zipf_loss)


def _told(held: "StoredBits") -> dict[str, Any]:
    return {**asdict(held), "weight_bits": held.weight_bits, "share": held.share}


def _transformer(
    method: TransformerMethod,
    keys: "Key[Array, ' 3']",
    asked: "PromptDistribution",
    shape: "Shape",
    block: int | None,
    training: Mapping[str, Any] | None,
) -> "Transformer":
    from factmem.training import best_run, runs_for_learning_rates, train_transformers
    from factmem.transformer import (
        EXPERIMENTS,
        THEORY,
        Embeddings,
        Transformer,
        attention_construction,
        compile_facts,
        mlp_construction,
    )

    if training is not None:
        protocol = protocol_of(training)
        start = Transformer.draw(keys[0], shape, asked.vocabulary)
        runs = train_transformers(
            runs_for_learning_rates(start, asked, protocol), protocol, keys[1]
        )
        return best_run(runs).model
    convention = EXPERIMENTS if method == "compiled" else THEORY
    embeddings = Embeddings.draw(keys[0], shape.dim, asked.vocabulary, convention)
    given = (keys[1], asked, embeddings)
    if method == "attention":
        return attention_construction(*given, shape.head_dim, block=block).model
    if method == "mlp":
        return mlp_construction(*given, shape.head_dim, shape.width, block=block).model
    return compile_facts(*given, shape).model
