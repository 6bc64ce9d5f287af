"""What hard noise in the training batches does to accuracy, in sampled prompts and in all prompts.

Each protocol trains with random noise alone, and with hard noise in half of the prompts, at two
table sizes and on fresh seeds. Runs are kept in the run store: an interrupted benchmark resumes.
Writes `benchmarks/hard_noise.md`.

    python benchmarks/hard_noise.py [--workers COUNT] [--stored-only] [--smallest]
"""

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from factmem.experiments import (
    Experiment,
    IndependentTasks,
    LocalWorkers,
    TableSpec,
    Task,
    Train,
    TransformerSpec,
)
from factmem.training.protocol import BEST, PAPER
from factmem.transformer.shape import Shape
from results import Metrics, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
SHAPE = Shape(32, 8, 4, 32)
ANSWERS = 8
CRITERION = 0.9999
"""Training ends early only if all test prompts are right."""
PROTOCOLS = {
    "paper": replace(PAPER, steps=2**12, criterion=CRITERION),
    "best": replace(BEST, steps=2**13, criterion=CRITERION),
}
FRACTIONS = (0.0, 0.5)
SIZES = (16, 24)
SEEDS = (100, 101, 102)
Case = tuple[str, float, int, int]
"""Protocol, fraction of hard noise, S = R, seed."""
CASES: list[Case] = [
    (protocol, fraction, size, seed)
    for size in SIZES
    for protocol in PROTOCOLS
    for fraction in FRACTIONS
    for seed in SEEDS
]
COLUMNS = ("accuracy", "worst_case_accuracy", "certified_any", "certified_distinct")


def measure_robustness(**config: Any) -> dict[str, Any]:
    """Train, recall all facts and certify the best run."""
    from factmem.transformer import certify

    result = TransformerSpec.from_config(config).run()
    prompts = result.instance.prompts
    certified = {
        f"certified_{noise}": certify(result.model, prompts, noise=noise).certified_accuracy
        for noise in ("any", "distinct")
    }
    return {**result.metrics, **result.instance.recall_metrics(result.model), **certified}


EXPERIMENT = Experiment("robustness of training", 1, measure_robustness)


def training_task(case: Case, shape: Shape = SHAPE, **options: Any) -> Task:
    """Return one training."""
    protocol, fraction, size, seed = case
    spec = TransformerSpec(
        table=TableSpec.random(size, size, ANSWERS),
        shape=shape,
        method=Train(protocol=replace(PROTOCOLS[protocol], hard_noise=fraction, **options)),
        seed=seed,
    )
    return Task(EXPERIMENT, spec.config())


def format_page(metrics: dict[Case, Metrics]) -> str:
    """Return the page."""
    shape = f"({SHAPE.dim}, {SHAPE.heads}, {SHAPE.head_dim}, {SHAPE.width})"
    steps = ", ".join(f"`{name}` {protocol.steps:,}" for name, protocol in PROTOCOLS.items())
    lines = [
        f"# Hard noise in training, (d, H, d_h, m) = {shape}",
        "",
        f"S = R, D = {ANSWERS}, T = 32, S + R noise tokens. Written by `benchmarks/hard_noise.py`.",
        f"A quarter of the protocols' steps: {steps}. Training ends earlier only if all 1,024 test",
        "prompts are right. *Hard noise* is the fraction of the prompts of a batch whose noise",
        "tokens are the strongest of a random head. The columns are, at the end of training: the",
        "accuracy in sampled prompts, all facts; the share of facts that are recalled in every",
        "test prompt, including those filled with the strongest noise token of a head; the share",
        "of facts with a certificate over all prompts, and over all prompts whose noise tokens",
        "are different.",
        "",
        "| S = R | protocol | hard noise | seed | steps | sampled | worst noise | certified "
        "| certified, distinct noise |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[int, str, float], list[Metrics]] = {}
    for (protocol, fraction, size, seed), row in metrics.items():
        numbers = " | ".join(f"{row[name]:.3f}" for name in COLUMNS)
        lines.append(f"| {size} | {protocol} | {fraction} | {seed} | {row['steps']} | {numbers} |")
        groups.setdefault((size, protocol, fraction), []).append(row)
    lines += [
        "",
        "Means over seeds:",
        "",
        "| S = R | protocol | hard noise | sampled | worst noise | certified "
        "| certified, distinct noise |",
        "|---|---|---|---|---|---|---|",
    ]
    for (size, protocol, fraction), rows in groups.items():
        means = " | ".join(f"{statistics.mean(row[name] for row in rows):.3f}" for name in COLUMNS)
        lines.append(f"| {size} | {protocol} | {fraction} | {means} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--workers", type=int, help="number of processes; default: all cores")
    options = parser.parse_args()
    tasks = {case: training_task(case) for case in CASES}
    if options.smallest:
        case = ("paper", 0.5, 16, 100)
        tasks = {case: training_task(case, Shape(16, 4, 4, 16), steps=128)}
    with open_results(options, partial(LocalWorkers, options.workers)) as results:
        metrics = results.get(IndependentTasks(tuple(tasks.values())))
    if metrics is None or not all(metrics):
        raise SystemExit("some runs are not in the store, or failed")
    page = format_page(dict(zip(tasks, metrics, strict=True)))
    if not options.smallest:
        PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
