"""The time of a training step for vocabularies of different sizes, in each form of prompts.

A step samples 1024 prompts of 32 tokens and does a forward pass, a backward pass and an Adam
update, in one run on all cores. Rounds of the forms alternate, and ratios are computed for each
round, so that a busy machine slows all of them down. The rule that chooses the form
(`factmem.transformer.choose_prompt_form`) was made from these times. Writes
`benchmarks/vocabularies.md`.

    python benchmarks/vocabularies.py [--table FILE.csv] [--rounds N] [--json] [--smallest]
"""

import argparse
import json
import resource
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr

from factmem.facts import FactTable, PromptDistribution, read_csv
from factmem.training import PAPER
from factmem.training.hyperparameters import Hyperparameters
from factmem.training.stack import advance, init_stack, prompt_form
from factmem.transformer import Shape, Transformer

FORMS = ("counts", "split", "tokens")
SHAPES = (Shape(32, 8, 4, 32), Shape(64, 16, 4, 512), Shape(128, 8, 16, 128))
PROMPT_TOKENS = (300, 1_000, 3_000, 10_000, 26_000)
FEW = 64
"""Noise tokens of the first series; in the second, half of the tokens are noise."""
RELATIONS, ANSWERS = 40, 38
TABLE_SHAPE = Shape(64, 16, 4, 512)
SECONDS = 0.2
"""Duration of one measurement of one form, at least."""


class Training:
    """One run whose steps are timed.

    The first form is the one that training chooses, so that memory can be read after it.
    """

    def __init__(self, shape, prompts, batch_size):
        model = Transformer.draw(shape, prompts.vocabulary, key=jr.key(0))
        settings = Hyperparameters(*(jnp.full(1, number) for number in (1e-3, 0.9, 0.999, 1.0)))
        self.config = PAPER.step_config._replace(batch_size=batch_size)
        models = jax.tree.map(lambda leaf: leaf[None], model)
        self.stack = init_stack(models, settings, prompts.fact_answers[None], self.config)
        self.prompts, self.number = prompts, 0
        self.chosen = prompt_form(self.stack, prompts)
        self.steps = {}
        self.megabytes = None
        for form in sorted(FORMS, key=lambda form: form != self.chosen):
            self.seconds(form, 1)  # compiles
            self.steps[form] = max(1, round(SECONDS / self.seconds(form, 2)))
            if self.megabytes is None:
                self.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def seconds(self, form, steps):
        """Return the mean time of a step over this many steps."""
        first_step, count = (jnp.asarray(n, jnp.int32) for n in (self.number, steps))
        start = time.perf_counter()
        self.stack = advance(
            self.stack,
            self.prompts,
            first_step,
            count,
            jnp.ones(1, bool),
            self.config,
            form=form,
            key=jr.key(3),
        )
        jax.block_until_ready(self.stack)
        self.number += steps
        return (time.perf_counter() - start) / steps


def measure(shape, prompts, rounds, batch_size=1024):
    """Return the times of all forms for one vocabulary."""
    training = Training(shape, prompts, batch_size)
    seconds = {form: [] for form in FORMS}
    for _ in range(rounds):
        for form in FORMS:
            seconds[form].append(training.seconds(form, training.steps[form]))
    chosen = seconds[training.chosen]
    vocabulary = prompts.vocabulary
    return {
        "dim": shape.dim,
        "heads": shape.heads,
        "head_dim": shape.head_dim,
        "width": shape.width,
        "prompt_tokens": vocabulary.prompt_tokens,
        "noise": vocabulary.noise,
        "answers": vocabulary.answers,
        "chosen": training.chosen,
        "milliseconds": {form: 1e3 * statistics.median(seconds[form]) for form in FORMS},
        "ratios": {
            form: statistics.median(a / b for a, b in zip(seconds[form], chosen, strict=True))
            for form in FORMS
        },
        "megabytes": training.megabytes,
    }


def random_prompts(prompt_tokens, noise, relations=RELATIONS, answers=ANSWERS, length=32):
    """Return prompts about a random table with this many tokens."""
    subjects = prompt_tokens - noise - relations - 1
    table = FactTable.random(subjects, relations, answers)
    return PromptDistribution.from_table(table, noise=noise, length=length)


def format_page(results, table_result, rounds):
    """Return the page."""
    lines = [
        "# Training steps by the size of the vocabulary",
        "",
        f"Written by `benchmarks/vocabularies.py`: one run on all cores, medians of {rounds}",
        "alternating rounds. A step samples 1024 prompts of 32 tokens and does a forward pass, a",
        f"backward pass and an Adam update; {RELATIONS} relations, {RELATIONS * ANSWERS} answers.",
        "*chosen* is the form that training uses; ratios are times relative to it.",
        "",
        "| d, H, d_h, m | prompt tokens | noise tokens | counts | split | tokens | chosen "
        "| counts / chosen | fastest / chosen |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        times = " | ".join(f"{r['milliseconds'][form]:.1f} ms" for form in FORMS)
        lines.append(
            f"| {r['dim']}, {r['heads']}, {r['head_dim']}, {r['width']} | {r['prompt_tokens']:,} | "
            f"{r['noise']:,} | {times} | {r['chosen']} | {r['ratios']['counts']:.2f} | "
            f"{min(r['ratios'].values()):.2f} |"
        )
    if table_result is not None:
        r = table_result
        times = ", ".join(f"{r['milliseconds'][form]:.1f} ms by {form}" for form in FORMS)
        lines += [
            "",
            f"A real table, {r['facts']:,} facts about {r['subjects']:,} subjects with "
            f"{r['answers']:,} answers and {r['noise']} noise tokens, in the shape "
            f"({r['dim']}, {r['heads']}, {r['head_dim']}, {r['width']}): {times}; training uses "
            f"{r['chosen']}. The process needs at most {r['megabytes']:.0f} MB with it.",
        ]
    return "\n".join(lines) + "\n"


def measure_table(file, rounds):
    """Return the times for a table of facts, with the fewest noise tokens."""
    table = read_csv(file)
    prompts = PromptDistribution.from_table(table, noise=FEW)
    sizes = {"facts": table.facts, "subjects": table.subjects}
    return {**measure(TABLE_SHAPE, prompts, rounds), **sizes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--table", help="a CSV file of facts to measure as well")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smallest", action="store_true", help="one small size, one round")
    options = parser.parse_args()
    table_result = None if options.table is None else measure_table(options.table, options.rounds)
    if options.smallest:
        prompts = random_prompts(64, 20, 4, 4, length=8)
        results = [measure(Shape(16, 4, 4, 16), prompts, 1, batch_size=64)]
    else:
        results = [
            measure(shape, random_prompts(tokens, noise), options.rounds)
            for shape in SHAPES
            for tokens in PROMPT_TOKENS
            for noise in (FEW, tokens // 2)
        ]
    if options.json or options.smallest:
        print(json.dumps({"results": results, "table": table_result}))
        return
    page = format_page(results, table_result, options.rounds)
    Path(__file__).with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
