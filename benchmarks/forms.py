"""The time of one training step on token counts, relative to `dense.py` in the same run.

Both steps do the same work: they sample a batch of 1024 prompts of 32 tokens and do a forward pass,
a backward pass and an Adam update. Both are jitted and called once per step from Python, on all
cores. Rounds of the two alternate, and a ratio is computed for each round, so that a busy machine
slows both down.

    python benchmarks/forms.py [--rounds N] [--tolerance X] [--json] [--smallest]
"""

import argparse
import json
import statistics
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import dense
from factmem.experiments import PromptSpec
from factmem.facts import FactTable, count_tokens
from factmem.transformer import (
    EXPERIMENT_CONVENTION,
    TRAINING_TOLERANCE,
    Embeddings,
    Shape,
    Transformer,
    Weights,
    cross_entropy,
)

SMALLEST = dense.Size(16, 4, 4, 16, 8, 8, 4, batch_size=64)


def convert_model(size, tables, weights, vocabulary):
    """Return the baseline's tables and weights as a factmem transformer."""
    transposed = {name: jnp.swapaxes(weights[name], 1, 2) for name in "qkv"}
    return Transformer(
        Weights(
            query=transposed["q"],
            key=transposed["k"],
            value=transposed["v"],
            output=weights["o"],
            mlp_in=weights["w1"].T,
            mlp_bias=weights["b1"],
            mlp_out=weights["w2"],
        ),
        Embeddings(*tables),
        Shape(size.dim, size.heads, size.head_dim, size.width),
        vocabulary,
        EXPERIMENT_CONVENTION,
    )


def make_step(model, prompts, batch_size, tolerance=TRAINING_TOLERANCE, learning_rate=1e-3):
    """Return a jitted `step(key, number, weights, optimizer_state)`, as `dense.make_step` does."""
    optimizer = optax.adam(learning_rate)

    def loss(weights, batch):
        trained = eqx.tree_at(lambda m: m.weights, model, weights)
        return cross_entropy(trained, batch.content, batch.answers, tolerance=tolerance)

    @jax.jit
    def step(key, number, weights, state):
        batch = prompts.sample_batch(batch_size, form="counts", key=jr.fold_in(key, number))
        value, gradient = jax.value_and_grad(loss)(weights, batch)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, value

    return step, optimizer.init


def gradient_difference(size, table, tables, model, tolerance):
    """Return the largest difference of gradients, relative to the largest entry of each array."""
    tokens, answers = dense.sample(jr.key(5), table, size)
    counts = count_tokens(tokens, model.vocabulary.prompt_tokens)
    w = model.weights
    transposed = {
        n: jnp.swapaxes(a, 1, 2) for n, a in zip("qkv", (w.query, w.key, w.value), strict=True)
    }
    weights = {"o": w.output, "w1": w.mlp_in.T, "b1": w.mlp_bias, "w2": w.mlp_out} | transposed
    expected = jax.jit(jax.grad(dense.loss))(weights, tables, tokens, answers)
    expected = convert_model(size, tables, expected, model.vocabulary).weights

    @jax.jit
    @jax.grad
    def gradient(weights):
        trained = eqx.tree_at(lambda m: m.weights, model, weights)
        return cross_entropy(trained, counts, answers, tolerance=tolerance)

    pairs = zip(jax.tree.leaves(gradient(w)), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


class TrainingLoop:
    """A training loop whose steps are timed."""

    def __init__(self, step, weights, state):
        self.step, self.weights, self.state, self.number = step, weights, state, 0
        start = time.perf_counter()
        self.milliseconds(1)
        self.compile_seconds = time.perf_counter() - start
        self.milliseconds(5)

    def milliseconds(self, steps):
        """Return the mean time of a step over this many steps."""
        start = time.perf_counter()
        for _ in range(steps):
            self.number += 1
            self.weights, self.state, value = self.step(
                jr.key(0), self.number, self.weights, self.state
            )
        jax.block_until_ready((self.weights, self.state, value))
        return (time.perf_counter() - start) / steps * 1e3


def measure(size, rounds, tolerance):
    """Return times, ratios and gradient differences of one size."""
    table = dense.random_table(jr.key(1), size)
    tables = dense.initial_tables(jr.key(2), size)
    weights = dense.initial_weights(jr.key(3), size)
    answers = size.relations * size.answers_per_relation
    names = tuple(f"answer {i:06d}" for i in range(answers))
    prompts = PromptSpec().draw(FactTable(np.asarray(table), answer_names=names))
    model = convert_model(size, tables, weights, prompts.vocabulary)

    dense_step, dense_init = dense.make_step(size, table, tables)
    baseline = TrainingLoop(dense_step, weights, dense_init(weights))
    step, init = make_step(model, prompts, size.batch_size, tolerance)
    counts = TrainingLoop(step, model.weights, init(model.weights))

    steps = max(5, round(400 / baseline.milliseconds(5)))
    pairs = [(baseline.milliseconds(steps), counts.milliseconds(3 * steps)) for _ in range(rounds)]
    trained = eqx.tree_at(lambda m: m.weights, model, counts.weights)
    ratios = sorted(slow / fast for slow, fast in pairs)
    return {
        "dim": size.dim,
        "heads": size.heads,
        "head_dim": size.head_dim,
        "width": size.width,
        "subjects": size.subjects,
        "relations": size.relations,
        "answers_per_relation": size.answers_per_relation,
        "dense_milliseconds": statistics.median(slow for slow, _ in pairs),
        "count_milliseconds": statistics.median(fast for _, fast in pairs),
        "ratio": statistics.median(ratios),
        "ratio_range": [ratios[0], ratios[-1]],
        "steps_trained": counts.number,
        "gradient_difference": {
            "at_start": gradient_difference(size, table, tables, model, tolerance),
            "at_end": gradient_difference(size, table, tables, trained, tolerance),
        },
        "compile_seconds": {"dense": baseline.compile_seconds, "count": counts.compile_seconds},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tolerance", type=float, default=TRAINING_TOLERANCE)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smallest", action="store_true", help="one small size, one round")
    options = parser.parse_args()
    sizes, rounds = ((SMALLEST,), 1) if options.smallest else (dense.SIZES, options.rounds)
    results = [measure(size, rounds, options.tolerance) for size in sizes]
    if options.json:
        print(json.dumps({"results": results}))
        return
    table = Table(title=f"one training step, median of {rounds} alternating rounds")
    columns = ("d, H, d_h, m, S=R, D", "dense", "counts", "ratio", "range", "gradient difference")
    for column in columns:
        table.add_column(column, justify="right")
    for r in results:
        table.add_row(
            f"{r['dim']}, {r['heads']}, {r['head_dim']}, {r['width']}, {r['subjects']}, "
            f"{r['answers_per_relation']}",
            f"{r['dense_milliseconds']:.1f} ms",
            f"{r['count_milliseconds']:.2f} ms",
            f"{r['ratio']:.1f}",
            "{:.1f} to {:.1f}".format(*r["ratio_range"]),
            "{at_start:.0e} to {at_end:.0e}".format(**r["gradient_difference"]),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
