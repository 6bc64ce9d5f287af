"""Trains a one-layer transformer on a random table of facts and asks it for every one of them.

The paper's experiment at one size: 24 subjects × 24 relations, 8 answers each, in a transformer
with d = 32, 8 heads of dimension 4 and an MLP of width 32. Takes about ten seconds on two cores.

    python examples/recall.py
"""

import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

from factmem import (
    FactTable,
    PromptDistribution,
    Shape,
    Transformer,
    accuracy,
    cross_entropy,
    load_transformer,
    save_transformer,
)
from factmem.transformer import TRAINING_TOLERANCE, dense_logits

BATCH, STEPS, CHUNK = 1024, 4096, 512


def make_chunk(asked, model, optimiser):
    """A compiled chunk of training steps, each on a fresh batch."""

    def loss(weights, prompts):
        trained = eqx.tree_at(lambda m: m.weights, model, weights)
        return cross_entropy(
            trained, prompts.content, prompts.answers, tolerance=TRAINING_TOLERANCE
        )

    def step(state, key):
        weights, optimiser_state = state
        prompts = asked.sample(key, BATCH, form="counts")
        value, gradient = jax.value_and_grad(loss)(weights, prompts)
        updates, optimiser_state = optimiser.update(gradient, optimiser_state)
        return (optax.apply_updates(weights, updates), optimiser_state), value

    return jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))


def largest_difference(model, asked, key):
    """Between the logits of the form over counts and those of the dense form, on one batch."""
    counts = asked.sample(key, 256, form="counts").content
    tokens = asked.sample(key, 256, form="tokens").content
    dense = jax.vmap(lambda prompt: dense_logits(model, prompt))(tokens)
    return float(jnp.max(jnp.abs(model.logits(counts) - dense)))


def main():
    """Trains, asks, saves, loads and asks again."""
    console = Console()
    table = FactTable.random(24, 24, 8, seed=0)
    asked = PromptDistribution.of(table, length=32)
    model = Transformer.draw(jr.key(0), Shape(32, 8, 4, width=32), asked.vocabulary)
    console.print(
        f"{table.facts} facts ({table.association_bits:.0f} bits) for "
        f"{model.shape.parameters} parameters"
    )
    every_fact = asked.ask(jr.key(1), jnp.arange(table.facts), form="counts")
    optimiser = optax.adam(1e-2)
    chunk = make_chunk(asked, model, optimiser)
    state = (model.weights, optimiser.init(model.weights))

    progress = Table("step", "loss (nats)", "facts recalled", "seconds")
    start = time.perf_counter()
    for first in range(0, STEPS, CHUNK):
        keys = jax.vmap(lambda step: jr.fold_in(jr.key(2), step))(jnp.arange(first, first + CHUNK))
        state, losses = chunk(state, keys)
        model = eqx.tree_at(lambda m: m.weights, model, state[0])
        share = float(accuracy(model, every_fact.content, every_fact.answers))
        progress.add_row(
            str(first + CHUNK),
            f"{float(losses[-1]):.4f}",
            f"{share:.1%}",
            f"{time.perf_counter() - start:.1f}",
        )
    console.print(progress)

    spread = float(jnp.max(jnp.ptp(model.scores(), axis=0)))
    console.print(
        f"Attention scores now spread over {spread:.0f} nats; the logits of the exact form over "
        f"counts and of the dense form differ by {largest_difference(model, asked, jr.key(3)):.0e}."
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recall.safetensors"
        save_transformer(model, path)
        loaded = load_transformer(path)
    again = accuracy(loaded, every_fact.content, every_fact.answers)
    console.print(f"Saved and loaded, it recalls {float(again):.1%} of the facts.")
    subject, relation, answer = next(table.records())
    guess = table.answer_names[int(np.argmax(loaded.logits(every_fact.content[:1])))]
    console.print(
        f"Asked for '{subject}', '{relation}' it says '{guess}'; the table says '{answer}'."
    )


if __name__ == "__main__":
    main()
