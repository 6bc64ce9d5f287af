"""How many facts the protocols `paper` and `best` store in one shape, seed by seed.

For every seed, S = R grows from a guess while training succeeds, or shrinks until it does. The
result is the largest stored S = R whose next larger size is not stored. Runs are kept in the run
store: an interrupted benchmark resumes. Writes `benchmarks/protocols.md`.

    python benchmarks/protocols.py [--seeds N] [--protocols paper best] [--stored-only]
"""

import statistics
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from factmem.experiments import IndependentTasks, TableSpec, Task, Train, TransformerSpec
from factmem.training.protocol import BEST, PAPER
from factmem.transformer.shape import Shape
from results import Metrics, SequentialTasks, ThisProcess, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
SHAPE = Shape(32, 8, 4, 32)
ANSWERS = 8
PROTOCOLS = {"paper": PAPER, "best": BEST}
GUESSES = {"paper": 24, "best": 36}
FIXED_SIZE, FIXED_SEEDS = 24, range(10)
"""A size that `paper` is trained on for more seeds."""
SMALLEST = 6


@cache
def training_task(protocol: str, size: int, seed: int) -> Task:
    """Return the training on S = R = size."""
    table = TableSpec.random(size, size, ANSWERS)
    method = Train(protocol=PROTOCOLS[protocol])
    return TransformerSpec(table=table, shape=SHAPE, method=method, seed=seed).task()


def succeeded(metrics: Metrics) -> bool:
    """Return whether the criterion of the protocol was reached."""
    return metrics["status"] == "criterion_reached"


def find_largest(
    protocol: str, seed: int, metrics_of: Callable[[Task], Metrics]
) -> tuple[int, Metrics]:
    """Return the largest stored S = R and the metrics of its training."""
    size = GUESSES[protocol]
    metrics = metrics_of(training_task(protocol, size, seed))
    if not succeeded(metrics):
        while not succeeded(metrics):
            size -= 1
            metrics = metrics_of(training_task(protocol, size, seed))
        return size, metrics
    while succeeded(above := metrics_of(training_task(protocol, size + 1, seed))):
        size, metrics = size + 1, above
    return size, metrics


def format_row(protocol: str, seed: int, size: int, metrics: Metrics) -> str:
    """Return a row of the table."""
    return (
        f"| {protocol} | {seed} | {size} | {metrics['facts']} | "
        f"{metrics['facts'] / metrics['parameters']:.3f} | {metrics['steps']} | "
        f"{metrics['best_accuracy']:.4f} | {metrics['accuracy']:.4f} | "
        f"{metrics['worst_case_accuracy']:.3f} |"
    )


def format_page(
    largest: dict[str, dict[int, tuple[int, Metrics]]], fixed: list[Metrics] | None
) -> str:
    """Return the page."""
    shape = f"({SHAPE.dim}, {SHAPE.heads}, {SHAPE.head_dim}, {SHAPE.width})"
    lines = [
        f"# Facts stored by training in (d, H, d_h, m) = {shape}",
        "",
        f"S = R, D = {ANSWERS}. A table is stored if the accuracy at one of the checks, on 1024",
        "fixed prompts, is above 99%. Written by `benchmarks/protocols.py`. The last two columns",
        "are measured at the end of training: the accuracy over *all* facts with fresh noise, and",
        "the share of facts that are recalled in all test prompts, including the worst noise.",
        "",
        "| protocol | seed | largest S = R | facts | facts per parameter | steps "
        "| best accuracy at a check | accuracy, all facts | accuracy in the worst noise |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    medians = {}
    for name, by_seed in largest.items():
        lines += [format_row(name, seed, *result) for seed, result in by_seed.items()]
        medians[name] = statistics.median(size**2 for size, _ in by_seed.values())
        lines.append(f"| {name} | median | | {medians[name]:g} | | | | | |")
    if {"paper", "best"} <= set(medians):
        lines += ["", f"Ratio of the medians: {medians['best'] / medians['paper']:.2f}."]
    if fixed:
        rates = [f"{metrics['learning_rate']:g}" for metrics in fixed if succeeded(metrics)]
        lines += [
            "",
            f"{FIXED_SIZE} × {FIXED_SIZE} facts with `paper`: {len(rates)} of the seeds 0 to 9 "
            f"succeed, with the learning rates {', '.join(rates)}; best accuracies "
            + ", ".join(f"{metrics['best_accuracy']:.4f}" for metrics in fixed)
            + "; accuracies over all facts with fresh noise "
            + ", ".join(f"{metrics['accuracy']:.4f}" for metrics in fixed)
            + ".",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS), choices=list(PROTOCOLS))
    options = parser.parse_args()
    largest: dict[str, dict[int, tuple[int, Metrics]]] = {}
    with open_results(options, ThisProcess) as results:
        if options.smallest:
            tasks = tuple(training_task(name, SMALLEST, 0) for name in PROTOCOLS)
            results.get(IndependentTasks(tasks))
            return
        for name in options.protocols:
            for seed in range(options.seeds):
                result = results.get(SequentialTasks(partial(find_largest, name, seed)))
                if result is None:
                    print(f"not in the store: {name}, seed {seed}")
                else:
                    largest.setdefault(name, {})[seed] = result
        tasks = [training_task("paper", FIXED_SIZE, seed) for seed in FIXED_SEEDS]
        fixed = results.get(SequentialTasks(lambda get: [get(task) for task in tasks]))
    page = format_page(largest, fixed)
    PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
