"""Train a one-layer transformer on a random table of facts and test every fact.

The paper's experiment at one size: 24 subjects × 24 relations, 8 answers each, in a transformer
with d = 32, 8 heads of dimension 4 and an MLP of width 32. Three learning rates are trained and the
best one counts. Takes about a minute on two cores.

    python examples/recall.py
"""

import tempfile
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from factmem import PAPER, PromptSpec, Shape, TableSpec, Transformer, load, recall, save
from factmem._core.timing import Stopwatch
from factmem.training import best_run, runs_for_learning_rates, train_transformers

ROW = "{:>13} {:>7} {:>12} {:>14}  {}"


def main() -> None:
    """Train, test, save, load and ask for one fact."""
    table = TableSpec.random(subjects=24, relations=24, answers=8).draw(seed=0)
    prompts = PromptSpec(length=32).draw(table)
    start = Transformer.draw(Shape(32, 8, 4, 32), prompts.vocabulary, key=jr.key(0))
    print(f"{table.facts} facts ({table.association_bits:.0f} bits)")
    print(f"{start.shape.parameters} parameters\n")
    with Stopwatch() as watch:
        runs = runs_for_learning_rates(start, prompts, PAPER)
        results = train_transformers(runs, PAPER, key=jr.key(1))
    print(ROW.format("learning rate", "steps", "loss (nats)", "best accuracy", "status"))
    for run in results:
        loss, accuracy = f"{run.evaluations[-1].loss:.4f}", f"{run.best_accuracy:.1%}"
        print(ROW.format(run.learning_rate, run.steps, loss, accuracy, run.status.label))
    print(f"training {watch.seconds:.0f} s, compilation {watch.compile_seconds:.0f} s\n")

    model = best_run(results).model
    test = recall(model, prompts, key=jr.key(2))
    print(f"accuracy on all facts with fresh noise: {test.sampled_accuracy:.1%}")
    print(f"facts recalled even in the worst noise: {test.accuracy:.1%}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recall.safetensors"
        save(model, path)
        loaded = load(path)
    subject, relation, answer = next(table.records())
    prompt = prompts.sample(jnp.arange(1, dtype=jnp.int32), form="counts", key=jr.key(4))
    predicted = table.answer_names[int(np.argmax(loaded.logits(prompt.content)))]
    print(f"saved, loaded and asked for '{subject}', '{relation}':")
    print(f"  answer '{predicted}', expected '{answer}'")


if __name__ == "__main__":
    main()
