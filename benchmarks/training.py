"""Training throughput against `dense.py` in the same run, and against the matrix products alone.

The engine runs as it does in a sweep: one worker a core, each with a stack of runs. The baseline
has all cores to itself. Rounds alternate between them, and ratios are taken round by round, so that
a machine that slows down slows both. Writes `benchmarks/training.md`.

    python benchmarks/training.py [--rounds N] [--json]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

STACKS = (1, 3, 6)
STEPS = {0: 96, 1: 32, 2: 12, 3: 192}
"""In one round, for each size: half a second or more."""
PROTOCOL_SIZE = (32, 8, 4, 32, 36, 36, 8)
"""Size number 3: that of `protocols.py`, with as many facts as `best` stores."""


class Worker:
    """A process that times what it is told to, on some cores."""

    def __init__(self, kind, size, stack, cores):
        self.stack = stack
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", kind, str(size), str(stack)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    def ask(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker died")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def rate(workers, steps):
    """Run-steps per second of several workers at once."""
    for worker in workers:
        worker.ask("time", steps)
    return sum(worker.stack * steps / worker.answer() for worker in workers)


def measure(size, rounds):
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as open_workers:

        def start(kind, stack, on):
            worker = Worker(kind, size, stack, on)
            worker.ask("time", 2)  # compiles
            worker.answer()
            return open_workers.enter_context(worker)

        baseline, single = start("dense", 1, cores), start("engine", 1, cores)
        stacks = {stack: [start("engine", stack, {core}) for core in cores] for stack in STACKS}
        found = {name: [] for name in ("dense", "single", *STACKS)}
        for _ in range(rounds):
            found["dense"].append(rate([baseline], max(4, STEPS[size] // 6)))
            found["single"].append(rate([single], STEPS[size]))
            for stack, workers in stacks.items():
                found[stack].append(rate(workers, max(4, STEPS[size] // stack)))
        best = max(STACKS, key=lambda stack: statistics.median(found[stack]))
        alone = stacks[best][0]
        alone.ask("products", rounds)
        products = alone.answer()
    ratios = sorted(ours / theirs for ours, theirs in zip(found[best], found["dense"], strict=True))
    singles = [ours / theirs for ours, theirs in zip(found["single"], found["dense"], strict=True)]
    return {
        "size": size,
        "cores": len(cores),
        "dense_milliseconds": 1e3 / statistics.median(found["dense"]),
        "single_milliseconds": 1e3 / statistics.median(found["single"]),
        "single_ratio": statistics.median(singles),
        "stacks": {stack: statistics.median(found[stack]) for stack in STACKS},
        "best_stack": best,
        "run_steps_per_second": statistics.median(found[best]),
        "ratio": statistics.median(ratios),
        "ratio_range": [ratios[0], ratios[-1]],
        **products,
    }


def protocol_seconds(rounds):
    """What all steps of the protocols take on one core, in the same rounds."""
    core = {min(os.sched_getaffinity(0))}
    with Worker("engine", 3, 3, core) as paper, Worker("muon", 3, 1, core) as best:
        found = {"paper": [], "best": []}
        for _ in range(rounds + 1):  # the first compiles
            for name, worker in (("paper", paper), ("best", best)):
                worker.ask("time", STEPS[3])
                found[name].append(worker.answer() / STEPS[3])
    steps = {"paper": 2**14, "best": 2**15}
    seconds = {name: steps[name] * statistics.median(found[name][1:]) for name in steps}
    ratios = [
        steps["best"] * ours / (steps["paper"] * theirs)
        for ours, theirs in zip(found["best"][1:], found["paper"][1:], strict=True)
    ]
    return {"seconds": seconds, "ratio": statistics.median(ratios)}


# ---- inside a worker -----------------------------------------------------------------------------


def work(kind, size, stack):
    import dense

    size = (*dense.SIZES, dense.Size(*PROTOCOL_SIZE))[size]
    timed = Dense(size) if kind == "dense" else Engine(size, stack, kind == "muon")
    for line in sys.stdin:
        command, number = json.loads(line)
        print(json.dumps(getattr(timed, command)(number)), flush=True)


class Dense:
    def __init__(self, size):
        import jax.random as jr

        import dense

        table = dense.random_table(jr.key(0), size)
        self.step, init = dense.make_step(size, table, dense.initial_tables(jr.key(1), size))
        self.weights = dense.initial_weights(jr.key(2), size)
        self.state, self.number = init(self.weights), 0

    def time(self, steps):
        import jax
        import jax.random as jr

        start = time.perf_counter()
        for _ in range(steps):
            self.weights, self.state, loss = self.step(
                jr.key(3), self.number, self.weights, self.state
            )
            self.number += 1
        jax.block_until_ready(loss)
        return time.perf_counter() - start


class Engine:
    def __init__(self, size, stack, muon):
        import jax
        import jax.numpy as jnp
        import jax.random as jr

        from factmem import FactTable, PromptDistribution, Shape, Transformer
        from factmem.training import BEST, PAPER
        from factmem.training.optimizers import Settings
        from factmem.training.stack import begin

        self.size, self.runs, self.number = size, stack, 0
        table = FactTable.random(size.subjects, size.relations, size.answers_per_relation)
        self.asked = PromptDistribution.of(table, length=size.length)
        shape = Shape(size.dim, size.heads, size.head_dim, size.width)
        keys = jr.split(jr.key(0), stack)
        models = jax.vmap(lambda key: Transformer.draw(key, shape, self.asked.vocabulary))(keys)
        settings = (0.05, 0.95, 0.99, 2.0**15) if muon else (1e-3, 0.9, 0.999, 1.0)
        numbers = [jnp.full(stack, number) for number in settings]
        self.recipe = BEST.recipe if muon else PAPER.recipe
        answers = jnp.stack([self.asked.fact_answers] * stack)
        self.stack = begin(models, Settings(*numbers), answers, self.recipe)

    def time(self, steps):
        import jax
        import jax.numpy as jnp
        import jax.random as jr

        from factmem.training.stack import advance

        now, more = jnp.asarray(self.number, jnp.int32), jnp.asarray(steps, jnp.int32)
        alive = jnp.ones(self.runs, bool)
        jax.block_until_ready(self.stack)
        start = time.perf_counter()
        self.stack = advance(self.stack, self.asked, jr.key(3), now, more, alive, self.recipe)
        jax.block_until_ready(self.stack)
        self.number += steps
        return time.perf_counter() - start

    def products(self, rounds):
        """A run-step against its matrix products, in this process and on its core."""
        steps = STEPS[_place(self.size)]
        ratios, parts = [], {name: [] for name in products(self.size)}
        for _ in range(rounds):
            step = self.time(steps) / (steps * self.runs)
            for name, shape in products(self.size).items():
                parts[name].append(product_seconds(*shape))
            ratios.append(step / sum(seconds[-1] for seconds in parts.values()))
        median = {name: 1e3 * statistics.median(seconds) for name, seconds in parts.items()}
        return {"over_products": statistics.median(ratios), "product_milliseconds": median}


def _place(size):
    import dense

    return dense.SIZES.index(size)


def products(size):
    """The matrix products of one training step."""
    from factmem import Shape, Vocabulary
    from factmem.training.cost import step_products

    answers = size.relations * size.answers_per_relation
    shape = Shape(size.dim, size.heads, size.head_dim, size.width)
    words = Vocabulary(size.subjects, size.relations, size.noise, answers)
    return step_products(shape, words, size.batch)


_DOTS = {}


def product_seconds(rows, inner, columns, transposed, repeats=5):
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    key = (rows, inner, columns, transposed)
    if key not in _DOTS:
        left = jr.normal(jr.key(0), (inner, rows) if transposed == "left" else (rows, inner))
        right = jr.normal(
            jr.key(1), (columns, inner) if transposed == "right" else (inner, columns)
        )
        dot = jax.jit(
            lambda left, right: jnp.dot(
                left.T if transposed == "left" else left,
                right.T if transposed == "right" else right,
                precision="highest",
            )
        )
        jax.block_until_ready(dot(left, right))
        _DOTS[key] = dot, left, right
    dot, left, right = _DOTS[key]
    start = time.perf_counter()
    for _ in range(repeats):
        found = dot(left, right)
    found.block_until_ready()
    return (time.perf_counter() - start) / repeats


# ---- the report ----------------------------------------------------------------------------------


def written(results, protocols, rounds):
    """The figures as a page."""
    import dense

    lines = [
        "# Training: run-steps per second against the dense baseline",
        "",
        f"{results[0]['cores']} cores, median of {rounds} alternating rounds, by",
        "`benchmarks/training.py`. A run-step is one step of one run: sampling 1024 prompts of 32",
        "tokens, forward, backward, Adam. `dense.py` has all cores for its one run. *Stacked*: one",
        "worker a core, each with the stack that was fastest. The last column is a run-step of",
        "that stack on one core over the sum of its matrix products, timed in the same process.",
        "",
        "| d, H, d_h, m, S = R, D | dense | one run, all cores | stacked, a run-step | stack |"
        " run-steps/s | ratio (range) | a step over its matrix products |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        s = dense.SIZES[r["size"]]
        low, high = r["ratio_range"]
        lines.append(
            f"| {s.dim}, {s.heads}, {s.head_dim}, {s.width}, {s.subjects}, "
            f"{s.answers_per_relation} | {r['dense_milliseconds']:.1f} ms | "
            f"{r['single_milliseconds']:.2f} ms ({r['single_ratio']:.1f}×) | "
            f"{1e3 / r['run_steps_per_second']:.2f} ms | {r['best_stack']} | "
            f"{r['run_steps_per_second']:.0f} | **{r['ratio']:.1f}** ({low:.1f} to {high:.1f}) | "
            f"{r['over_products']:.2f} |"
        )
    paper, best = protocols["seconds"]["paper"], protocols["seconds"]["best"]
    lines += [
        "",
        "All steps of the protocols at (32, 8, 4, 32), S = R = 36, on one core, none ending early:",
        f"`paper` (three rates, 2^14 steps) {paper:.0f} s, `best` (2^15 steps) {best:.0f} s: "
        f"{protocols['ratio']:.2f} of it.",
    ]
    lines += ["", "The matrix products of a step, each timed alone as a jitted `dot` on one core:"]
    for r in results:
        s = dense.SIZES[r["size"]]
        lines += ["", f"d = {s.dim}:", "", "| product | shape | ms |", "|---|---|---|"]
        for name, (rows, inner, columns, _) in products(s).items():
            spent = r["product_milliseconds"][name]
            lines.append(f"| {name} | {rows} × {inner} × {columns} | {spent:.3f} |")
        lines.append(f"| sum | | {sum(r['product_milliseconds'].values()):.2f} |")
    return "\n".join(lines) + "\n"


def main():
    if "--worker" in sys.argv:
        kind, size, stack = sys.argv[2:]
        work(kind, int(size), int(stack))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = [measure(size, options.rounds) for size in range(3)]
    protocols = protocol_seconds(options.rounds)
    if options.json:
        print(json.dumps({"results": results, "protocols": protocols}))
        return
    page = written(results, protocols, options.rounds)
    Path(__file__).with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
