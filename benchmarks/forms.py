"""One training step of the form over token counts against `dense.py`, in the same run.

Both steps do the same work: sample a batch of 1024 prompts of 32 tokens, forward, backward, Adam.
Both are jitted and called once a step from Python, on all cores. Rounds of the two alternate, and
the ratio is taken round by round, so that a machine that slows down slows both.

    python benchmarks/forms.py [--rounds N] [--tolerance X] [--json]
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
from factmem import FactTable, PromptDistribution, Shape, Transformer, cross_entropy
from factmem.facts import count_tokens
from factmem.transformer import EXPERIMENTS, TRAINING_TOLERANCE, Embeddings, Weights


def same_model(size, tables, weights, vocabulary):
    """The baseline's tables and weights as a factmem transformer."""
    turned = {name: jnp.swapaxes(weights[name], 1, 2) for name in "qkv"}
    return Transformer(
        Weights(
            query=turned["q"],
            key=turned["k"],
            value=turned["v"],
            output=weights["o"],
            mlp_in=weights["w1"].T,
            mlp_bias=weights["b1"],
            mlp_out=weights["w2"],
        ),
        Embeddings(*tables),
        Shape(size.dim, size.heads, size.head_dim, size.width),
        vocabulary,
        EXPERIMENTS,
    )


def make_step(model, asked, batch, tolerance=TRAINING_TOLERANCE, learning_rate=1e-3):
    """A jitted `step(key, number, weights, optimizer_state)`, as in `dense.make_step`."""
    optimizer = optax.adam(learning_rate)

    def loss(weights, prompts):
        trained = eqx.tree_at(lambda m: m.weights, model, weights)
        return cross_entropy(trained, prompts.content, prompts.answers, tolerance=tolerance)

    @jax.jit
    def step(key, number, weights, state):
        prompts = asked.sample(jr.fold_in(key, number), batch, form="counts")
        value, gradient = jax.value_and_grad(loss)(weights, prompts)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, value

    return step, optimizer.init


def gradient_difference(size, table, tables, model, tolerance):
    """The largest difference in any weight's gradient, relative to its largest entry."""
    tokens, answers = dense.sample(jr.key(5), table, size)
    counts = count_tokens(tokens, model.vocabulary.prompt_tokens)
    w = model.weights
    turned = {
        n: jnp.swapaxes(a, 1, 2) for n, a in zip("qkv", (w.query, w.key, w.value), strict=True)
    }
    weights = {"o": w.output, "w1": w.mlp_in.T, "b1": w.mlp_bias, "w2": w.mlp_out} | turned
    theirs = jax.jit(jax.grad(dense.loss))(weights, tables, tokens, answers)
    theirs = same_model(size, tables, theirs, model.vocabulary).weights

    @jax.jit
    @jax.grad
    def ours(weights):
        trained = eqx.tree_at(lambda m: m.weights, model, weights)
        return cross_entropy(trained, counts, answers, tolerance=tolerance)

    pairs = zip(jax.tree.leaves(ours(w)), jax.tree.leaves(theirs), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


class Timed:
    """A training loop that can be timed for a number of steps at a time."""

    def __init__(self, step, weights, state):
        self.step, self.weights, self.state, self.number = step, weights, state, 0
        start = time.perf_counter()
        self.milliseconds(1)
        self.compile_seconds = time.perf_counter() - start
        self.milliseconds(5)

    def milliseconds(self, steps):
        """The mean time of a step, over this many."""
        start = time.perf_counter()
        for _ in range(steps):
            self.number += 1
            self.weights, self.state, value = self.step(
                jr.key(0), self.number, self.weights, self.state
            )
        jax.block_until_ready((self.weights, self.state, value))
        return (time.perf_counter() - start) / steps * 1e3


def measure(size, rounds, tolerance):
    table = dense.random_table(jr.key(1), size)
    tables = dense.initial_tables(jr.key(2), size)
    weights = dense.initial_weights(jr.key(3), size)
    answers = size.relations * size.answers_per_relation
    names = tuple(f"answer {i:06d}" for i in range(answers))
    asked = PromptDistribution.of(FactTable(np.asarray(table), answer_names=names))
    model = same_model(size, tables, weights, asked.vocabulary)

    dense_step, dense_init = dense.make_step(size, table, tables)
    baseline = Timed(dense_step, weights, dense_init(weights))
    step, init = make_step(model, asked, size.batch, tolerance)
    ours = Timed(step, model.weights, init(model.weights))

    steps = max(5, round(400 / baseline.milliseconds(5)))
    pairs = [(baseline.milliseconds(steps), ours.milliseconds(3 * steps)) for _ in range(rounds)]
    trained = eqx.tree_at(lambda m: m.weights, model, ours.weights)
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
        "steps_trained": ours.number,
        "gradient_difference": {
            "at_start": gradient_difference(size, table, tables, model, tolerance),
            "at_end": gradient_difference(size, table, tables, trained, tolerance),
        },
        "compile_seconds": {"dense": baseline.compile_seconds, "count": ours.compile_seconds},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tolerance", type=float, default=TRAINING_TOLERANCE)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = [measure(size, options.rounds, options.tolerance) for size in dense.SIZES]
    if options.json:
        print(json.dumps({"results": results}))
        return
    shown = Table(title=f"one training step, median of {options.rounds} alternating rounds")
    for column in ("d, H, d_h, m, S=R, D", "dense", "counts", "ratio", "range", "gradients differ"):
        shown.add_column(column, justify="right")
    for r in results:
        shown.add_row(
            f"{r['dim']}, {r['heads']}, {r['head_dim']}, {r['width']}, {r['subjects']}, "
            f"{r['answers_per_relation']}",
            f"{r['dense_milliseconds']:.1f} ms",
            f"{r['count_milliseconds']:.2f} ms",
            f"{r['ratio']:.1f}",
            "{:.1f} to {:.1f}".format(*r["ratio_range"]),
            "{at_start:.0e} to {at_end:.0e}".format(**r["gradient_difference"]),
        )
    Console().print(shown)


if __name__ == "__main__":
    main()
