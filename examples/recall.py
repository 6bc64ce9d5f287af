"""Trains a one-layer transformer on a random table of facts and asks it for every one of them.

The paper's experiment at one size: 24 subjects × 24 relations, 8 answers each, in a transformer
with d = 32, 8 heads of dimension 4 and an MLP of width 32, at three learning rates of which the
best counts. Takes up to a minute on two cores.

    python examples/recall.py
"""

import tempfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from factmem import (
    FactTable,
    PromptDistribution,
    Shape,
    Transformer,
    load_transformer,
    save_transformer,
)
from factmem._core.timing import Stopwatch
from factmem.training import PAPER, best_run, runs_for_learning_rates, train_transformers
from factmem.transformer import dense_logits, recall


def largest_difference(model, asked, key):
    """Between the logits of the form over counts and those of the dense form, on one batch."""
    counts = asked.sample(key, 256, form="counts").content
    tokens = asked.sample(key, 256, form="tokens").content
    dense = jax.vmap(lambda prompt: dense_logits(model, prompt))(tokens)
    return float(jnp.max(jnp.abs(eqx.filter_jit(Transformer.logits)(model, counts) - dense)))


def main():
    """Trains, asks, saves, loads and asks again."""
    console = Console()
    table = FactTable.random(24, 24, 8, seed=0)
    asked = PromptDistribution.of(table, length=32)
    start = Transformer.draw(jr.key(0), Shape(32, 8, 4, width=32), asked.vocabulary)
    console.print(
        f"{table.facts} facts ({table.association_bits:.0f} bits) for "
        f"{start.shape.parameters} parameters"
    )
    with Progress(console=console, transient=True) as bar, Stopwatch() as watch:
        task = bar.add_task("training", total=PAPER.steps)
        runs = train_transformers(
            runs_for_learning_rates(start, asked, PAPER),
            PAPER,
            jr.key(1),
            report=lambda steps, **_: bar.update(task, completed=steps),
        )
    shown = Table("learning rate", "steps", "loss (nats)", "best accuracy", "it ended because")
    for run in runs:
        shown.add_row(
            f"{run.learning_rate:g}",
            f"{run.steps:,}",
            f"{run.checks[-1].loss:.4f}",
            f"{run.best_accuracy:.1%}",
            run.outcome.value,
        )
    console.print(shown)
    console.print(f"{watch.seconds:.0f} seconds, and {watch.compile_seconds:.0f} of compilation.")

    model = best_run(runs).model
    found = recall(model, asked, jr.key(2))
    console.print(
        f"Asked for every fact with fresh noise it is right in {found.sampled_accuracy:.1%} of "
        f"the prompts; {found.accuracy:.1%} of the facts survive all, the worst noise included."
    )
    spread = float(jnp.max(jnp.ptp(model.scores(), axis=0)))
    console.print(
        f"Attention scores spread over {spread:.0f} nats; the logits of the exact form over "
        f"counts and of the dense form differ by {largest_difference(model, asked, jr.key(3)):.0e}."
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recall.safetensors"
        save_transformer(model, path)
        loaded = load_transformer(path)
    subject, relation, answer = next(table.records())
    question = asked.ask(jr.key(4), jnp.arange(1, dtype=jnp.int32), form="counts")
    guess = table.answer_names[int(np.argmax(loaded.logits(question.content)))]
    console.print(
        f"Saved, loaded and asked for '{subject}', '{relation}' it says '{guess}'; the table says "
        f"'{answer}'."
    )


if __name__ == "__main__":
    main()
