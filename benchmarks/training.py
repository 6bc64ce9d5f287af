"""Training throughput relative to `dense.py` in the same run, and to the matrix products alone.

The engine runs as in a sweep: one worker per core, each with a stack of runs. The baseline has all
cores to itself. Rounds alternate between them, and a ratio is computed for each round, so that a
busy machine slows both down. Writes `benchmarks/training.md`.

    python benchmarks/training.py [--rounds N] [--json] [--smallest]
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
STEPS = {0: 96, 1: 32, 2: 12, 3: 192, 4: 4}
"""Steps per round for each size: at least half a second."""
PROTOCOL_SIZE = (32, 8, 4, 32, 36, 36, 8)
"""Size 3: that of `protocols.py`, with as many facts as `best` stores."""
SMALLEST_SIZE = (16, 4, 4, 16, 8, 8, 4)
"""Size 4."""


class Worker:
    """A process, pinned to some cores, that executes timing commands."""

    def __init__(self, kind, size, stack, cores):
        self.stack = stack
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", kind, str(size), str(stack)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    def send(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker process died")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def rate(workers, steps):
    """Return the run-steps per second of several workers together."""
    for worker in workers:
        worker.send("time", steps)
    return sum(worker.stack * steps / worker.receive() for worker in workers)


def measure(size, rounds, stack_sizes=STACKS):
    """Return the throughput at one size: dense, one run on all cores, and stacks of runs."""
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as open_workers:

        def start(kind, stack, worker_cores):
            worker = Worker(kind, size, stack, worker_cores)
            worker.send("time", 2)  # compiles
            worker.receive()
            return open_workers.enter_context(worker)

        baseline, single = start("dense", 1, cores), start("engine", 1, cores)
        stacks = {
            stack: [start("engine", stack, {core}) for core in cores] for stack in stack_sizes
        }
        rates = {name: [] for name in ("dense", "single", *stack_sizes)}
        for _ in range(rounds):
            rates["dense"].append(rate([baseline], max(4, STEPS[size] // 6)))
            rates["single"].append(rate([single], STEPS[size]))
            for stack, workers in stacks.items():
                rates[stack].append(rate(workers, max(4, STEPS[size] // stack)))
        best = max(stack_sizes, key=lambda stack: statistics.median(rates[stack]))
        worker = stacks[best][0]
        worker.send("products", rounds)
        products = worker.receive()
    ratios = sorted(ratios_to_dense(rates, best))
    return {
        "size": size,
        "cores": len(cores),
        "dense_milliseconds": 1e3 / statistics.median(rates["dense"]),
        "single_milliseconds": 1e3 / statistics.median(rates["single"]),
        "single_ratio": statistics.median(ratios_to_dense(rates, "single")),
        "stacks": {stack: statistics.median(rates[stack]) for stack in stack_sizes},
        "best_stack": best,
        "run_steps_per_second": statistics.median(rates[best]),
        "ratio": statistics.median(ratios),
        "ratio_range": [ratios[0], ratios[-1]],
        **products,
    }


def ratios_to_dense(rates, name):
    """Return the ratio of each round."""
    return [fast / slow for fast, slow in zip(rates[name], rates["dense"], strict=True)]


def protocol_seconds(rounds):
    """Return the time of all steps of the protocols on one core, measured in the same rounds."""
    core = {min(os.sched_getaffinity(0))}
    with Worker("engine", 3, 3, core) as paper, Worker("muon", 3, 1, core) as best:
        step_seconds = {"paper": [], "best": []}
        for _ in range(rounds + 1):  # the first compiles
            for name, worker in (("paper", paper), ("best", best)):
                worker.send("time", STEPS[3])
                step_seconds[name].append(worker.receive() / STEPS[3])
    steps = {"paper": 2**14, "best": 2**15}
    seconds = {name: steps[name] * statistics.median(step_seconds[name][1:]) for name in steps}
    ratios = [
        steps["best"] * best / (steps["paper"] * paper)
        for best, paper in zip(step_seconds["best"][1:], step_seconds["paper"][1:], strict=True)
    ]
    return {"seconds": seconds, "ratio": statistics.median(ratios)}


# ---- inside a worker -----------------------------------------------------------------------------


def size_number(number):
    """Return one of the baseline's sizes or one of the sizes above."""
    import dense

    return (*dense.SIZES, dense.Size(*PROTOCOL_SIZE), dense.Size(*SMALLEST_SIZE))[number]


def run_worker(kind, number, stack):
    """Execute the commands on standard input."""
    size = size_number(number)
    training = Dense(size) if kind == "dense" else Engine(size, STEPS[number], stack, kind)
    for line in sys.stdin:
        command, argument = json.loads(line)
        print(json.dumps(getattr(training, command)(argument)), flush=True)


class Dense:
    """The baseline."""

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
    """A stack of runs; kind `muon` trains as the protocol `best`, `engine` as `paper`."""

    def __init__(self, size, steps_per_round, stack, kind):
        import jax
        import jax.numpy as jnp
        import jax.random as jr

        from factmem.experiments import PromptSpec, TableSpec
        from factmem.training import BEST, PAPER
        from factmem.training.hyperparameters import Hyperparameters
        from factmem.training.stack import init_stack
        from factmem.transformer import Shape, Transformer

        self.size, self.steps_per_round, self.runs, self.number = size, steps_per_round, stack, 0
        table = TableSpec.random(size.subjects, size.relations, size.answers_per_relation)
        self.prompts = PromptSpec(length=size.length).draw(table.draw(seed=0))
        shape = Shape(size.dim, size.heads, size.head_dim, size.width)
        keys = jr.split(jr.key(0), stack)
        vocabulary = self.prompts.vocabulary
        models = jax.vmap(lambda key: Transformer.draw(shape, vocabulary, key=key))(keys)
        muon = kind == "muon"
        settings = (0.05, 0.95, 0.99, 2.0**15) if muon else (1e-3, 0.9, 0.999, 1.0)
        hyperparameters = Hyperparameters(*(jnp.full(stack, number) for number in settings))
        self.config = BEST.step_config if muon else PAPER.step_config
        answers = jnp.stack([self.prompts.fact_answers] * stack)
        self.stack = init_stack(models, hyperparameters, answers, self.config)

    def time(self, steps):
        """Return the seconds that steps of all runs take."""
        import jax
        import jax.numpy as jnp
        import jax.random as jr

        from factmem.training.stack import advance

        first_step, count = jnp.asarray(self.number, jnp.int32), jnp.asarray(steps, jnp.int32)
        active = jnp.ones(self.runs, bool)
        jax.block_until_ready(self.stack)
        start = time.perf_counter()
        self.stack = advance(
            self.stack, self.prompts, first_step, count, active, self.config, key=jr.key(3)
        )
        jax.block_until_ready(self.stack)
        self.number += steps
        return time.perf_counter() - start

    def products(self, rounds):
        """Compare a run-step with its matrix products, in this process and on its core."""
        ratios, seconds = [], {name: [] for name in step_products(self.size)}
        for _ in range(rounds):
            step = self.time(self.steps_per_round) / (self.steps_per_round * self.runs)
            for name, shape in step_products(self.size).items():
                seconds[name].append(product_seconds(*shape))
            ratios.append(step / sum(times[-1] for times in seconds.values()))
        median = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
        return {"over_products": statistics.median(ratios), "product_milliseconds": median}


def step_products(size):
    """Return the matrix products of one training step."""
    from factmem.facts import Vocabulary
    from factmem.training import cost
    from factmem.transformer import Shape

    answers = size.relations * size.answers_per_relation
    shape = Shape(size.dim, size.heads, size.head_dim, size.width)
    vocabulary = Vocabulary(size.subjects, size.relations, size.noise, answers)
    return cost.step_products(shape, vocabulary, size.batch_size)


_DOTS = {}


def product_seconds(rows, inner, columns, transposed, repeats=5):
    """Return the time of one matrix product."""
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
        product = dot(left, right)
    product.block_until_ready()
    return (time.perf_counter() - start) / repeats


# ---- the page ------------------------------------------------------------------------------------


def format_page(results, protocols, rounds):
    """Return the page."""
    lines = [
        "# Training: run-steps per second, relative to the dense baseline",
        "",
        f"{results[0]['cores']} cores, median of {rounds} alternating rounds, written by",
        "`benchmarks/training.py`. A run-step is one step of one run: sampling 1024 prompts of 32",
        "tokens, forward pass, backward pass, Adam. `dense.py` has all cores for its one run.",
        "*Stacked*: one worker per core, each with the fastest stack size. The last column is the",
        "time of a run-step of that stack on one core, divided by the time of its matrix products",
        "in the same process.",
        "",
        "| d, H, d_h, m, S = R, D | dense | one run, all cores | stacked, per run-step | stack "
        "| run-steps/s | ratio (range) | step / matrix products |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        s = size_number(r["size"])
        low, high = r["ratio_range"]
        lines.append(
            f"| {s.dim}, {s.heads}, {s.head_dim}, {s.width}, {s.subjects}, "
            f"{s.answers_per_relation} | {r['dense_milliseconds']:.1f} ms | "
            f"{r['single_milliseconds']:.2f} ms ({r['single_ratio']:.1f}×) | "
            f"{1e3 / r['run_steps_per_second']:.2f} ms | {r['best_stack']} | "
            f"{r['run_steps_per_second']:.0f} | **{r['ratio']:.1f}** ({low:.1f} to {high:.1f}) | "
            f"{r['over_products']:.2f} |"
        )
    if protocols is not None:
        paper, best = protocols["seconds"]["paper"], protocols["seconds"]["best"]
        lines += [
            "",
            "All steps of the protocols for (32, 8, 4, 32) and S = R = 36 on one core, without",
            f"early stopping: `paper` (three learning rates, 2^14 steps) takes {paper:.0f} s, "
            f"`best` (2^15 steps) {best:.0f} s, a ratio of {protocols['ratio']:.2f}.",
        ]
    lines += ["", "The matrix products of a step, each timed as a jitted `dot` on one core:"]
    for r in results:
        s = size_number(r["size"])
        lines += ["", f"d = {s.dim}:", "", "| product | shape | time (ms) |", "|---|---|---|"]
        for name, (rows, inner, columns, _) in step_products(s).items():
            milliseconds = r["product_milliseconds"][name]
            lines.append(f"| {name} | {rows} × {inner} × {columns} | {milliseconds:.3f} |")
        lines.append(f"| sum | | {sum(r['product_milliseconds'].values()):.2f} |")
    return "\n".join(lines) + "\n"


def main():
    if "--worker" in sys.argv:
        kind, number, stack = sys.argv[2:]
        run_worker(kind, int(number), int(stack))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smallest", action="store_true", help="one small size, one round")
    options = parser.parse_args()
    if options.smallest:
        results, protocols = [measure(4, 1, stack_sizes=(3,))], None
    else:
        results = [measure(number, options.rounds) for number in range(3)]
        protocols = protocol_seconds(options.rounds)
    if options.json:
        print(json.dumps({"results": results, "protocols": protocols}))
        return
    page = format_page(results, protocols, 1 if options.smallest else options.rounds)
    if not options.smallest:
        Path(__file__).with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
