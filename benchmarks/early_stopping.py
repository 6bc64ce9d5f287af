"""Whether training by `paper` may be ended early: verdicts with and without the rule.

Training runs to its end around the threshold, seed by seed, and the rule is applied to the accuracy
curves afterwards. The rule was chosen on the first grid; the second grid is held out. Runs are kept
in the run store: an interrupted benchmark resumes. Writes `benchmarks/early_stopping.md`.

    python benchmarks/early_stopping.py [--workers COUNT] [--stored-only]
"""

from functools import partial
from pathlib import Path
from typing import Any

from factmem.experiments import (
    Experiment,
    IndependentTasks,
    LocalWorkers,
    MeasurementGroup,
    TableSpec,
    Task,
    Train,
    TransformerCapacityProblem,
    TransformerSpec,
)
from factmem.training.protocol import PAPER, Protocol
from factmem.transformer.shape import Shape
from results import Metrics, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
Grid = list[tuple[tuple[int, int, int, int], int, int]]
"""Shape, S = R and seed."""
GRIDS: dict[str, Grid] = {
    "used to choose the rule": [
        *(((32, 8, 4, 32), size, seed) for size in range(23, 29) for seed in range(10, 14)),
        *(((16, 8, 2, 16), size, seed) for size in range(10, 16) for seed in range(10, 17)),
    ],
    "held out": [
        *(((16, 8, 2, 16), size, seed) for size in range(12, 16) for seed in range(20, 35)),
        *(((24, 8, 3, 24), size, seed) for size in range(18, 22) for seed in range(20, 25)),
    ],
}
SMALLEST: dict[str, Grid] = {"smallest": [((16, 8, 2, 16), 4, seed) for seed in range(2)]}


def measure_curves(**config: Any) -> dict[str, Any]:
    """Train and return the accuracy of every learning rate at every evaluation."""
    result = TransformerSpec.from_config(config).run()
    return {
        "runs": [
            {"success": run.success, "accuracy": [each.accuracy for each in run.evaluations]}
            for run in result.built.runs
        ]
    }


EXPERIMENT = Experiment("accuracy curves", 1, measure_curves)


def curve_task(shape: tuple[int, int, int, int], size: int, seed: int) -> Task:
    """Return the training on S = R = size with D = 8."""
    spec = TransformerSpec(
        table=TableSpec.random(size, size, 8),
        shape=Shape(*shape),
        method=Train(protocol=PAPER),
        seed=seed,
    )
    return Task(EXPERIMENT, spec.config())


def apply_rule(runs: list[Metrics], protocol: Protocol) -> tuple[bool, int]:
    """Return whether a training run with the rule succeeds, and its number of evaluations."""

    def last_evaluation(run: Metrics) -> tuple[int, bool]:
        """Return the evaluation at which a run ends, and whether it has reached the criterion."""
        last, best = len(run["accuracy"]) - 1, 0.0
        for index, accuracy in enumerate(run["accuracy"]):
            best = max(best, accuracy)
            if index < last and protocol.stops_early(protocol.steps_at(index), best):
                return index, False
        return last, run["success"]

    ends = [last_evaluation(run) for run in runs]
    successes = [index for index, success in ends if success]
    return bool(successes), sum(min([index, *successes]) for index, _ in ends)


def compare(grid: Grid, metrics: list[Metrics]) -> dict[str, Any]:
    """Return how often verdicts agree, and the share of steps done, in all and in failures."""
    shape, size, seed = grid[0]
    # A capacity search trains by `paper` with the rule.
    protocol = TransformerCapacityProblem(Shape(*shape)).spec(size, seed).method.protocol
    agree, stored, wrong = 0, 0, []
    checks, all_checks, failing_checks, all_failing_checks = 0, 0, 0, 0
    for entry, curves in zip(grid, metrics, strict=True):
        runs = curves["runs"]
        truth = any(run["success"] for run in runs)
        cost = sum(len(run["accuracy"]) - 1 for run in runs)
        verdict, reduced_cost = apply_rule(runs, protocol)
        agree += verdict == truth
        stored += truth
        wrong += [entry] * (verdict != truth)
        checks, all_checks = checks + reduced_cost, all_checks + cost
        if not truth:
            failing_checks += reduced_cost
            all_failing_checks += cost
    return {
        "probes": len(grid),
        "stored": stored,
        "agree": agree,
        "wrong": wrong,
        "steps": checks / all_checks,
        "failing_steps": failing_checks / all_failing_checks if all_failing_checks else None,
    }


def format_page(comparisons: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    lines = [
        "# Early stopping",
        "",
        "Written by `benchmarks/early_stopping.py`: training by `paper` to its end around the",
        "threshold, S = R, D = 8. The rule ends a run if its best accuracy at the checks is below",
        "75% after a quarter of the steps, or below 93% after half of them.",
        "",
        "| training runs | stored | verdicts agree | steps done | steps done if not stored |",
        "|---|---|---|---|---|",
    ]
    for name, row in comparisons.items():
        failing = "–" if row["failing_steps"] is None else f"{row['failing_steps']:.0%}"
        lines.append(
            f"| {name}: {row['probes']} | {row['stored']} | {row['agree']} "
            f"({row['agree'] / row['probes']:.1%}) | {row['steps']:.0%} | {failing} |"
        )
    wrong = [entry for row in comparisons.values() for entry in row["wrong"]]
    if wrong:
        entries = "; ".join(f"{shape}, S = {size}, seed {seed}" for shape, size, seed in wrong)
        lines += ["", f"Stored, but not stored according to the rule: {entries}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--workers", type=int, help="number of processes; default: all cores")
    options = parser.parse_args()
    grids = SMALLEST if options.smallest else GRIDS
    tasks = {name: tuple(curve_task(*entry) for entry in grid) for name, grid in grids.items()}
    group = MeasurementGroup({name: IndependentTasks(part) for name, part in tasks.items()})
    with open_results(options, partial(LocalWorkers, options.workers)) as results:
        metrics = results.get(group)
    if metrics is None:
        raise SystemExit("some runs are not in the store")
    page = format_page({name: compare(grid, metrics[name]) for name, grid in grids.items()})
    if not options.smallest:
        PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
