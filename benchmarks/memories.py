"""How many parameters each method needs to store N associations, all of them.

For every method and seed, bisection finds the smallest width (for linear memories, the smallest
dimension) at which every association is recalled, in float32 and with weights of 16 bits. The final
bracket is 5% wide. The table gives the properties of that memory: parameters, bits per parameter,
relative margin, bits per weight that it needs, noise that it tolerates, and the seconds to build it
without compilation. Embeddings are random unit vectors, the target is a random permutation. Grid,
seeds and limits are in `grid` and were fixed before measuring.

Runs are kept in the run store: an interrupted benchmark resumes.

    python benchmarks/memories.py            # N = 512 and 1024 at d = 64, five seeds
    python benchmarks/memories.py --slow     # and d = 128 and trained methods, three seeds
    python benchmarks/memories.py --smallest # the smallest case, in seconds
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from factmem.experiments import Experiment, MemorySpec, Task
from factmem.training.protocol import LINEAR_PROTOCOL, MLP_PROTOCOL
from results import Metrics, SequentialTasks, ThisProcess, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
BRACKET = 1.05
STEP = 1.15
# The paper's protocols, except that all associations must be recalled.
PROTOCOLS = {
    "trained-linear": replace(LINEAR_PROTOCOL, criterion=1.0),
    "trained-mlp": replace(MLP_PROTOCOL, criterion=1.0),
}


@dataclass(frozen=True)
class Cell:
    """A method at a number of facts.

    `variable` is the size that is searched for, `dim` or `width`; `guess` is where the search
    starts, `limit` where it gives up.
    """

    method: str
    facts: int
    dim: int | None
    variable: str
    guess: int
    limit: int
    seeds: int = 5
    slow: bool = False
    degree: int | None = None

    @property
    def name(self) -> str:
        return self.method if self.degree is None else f"{self.method}, k = {self.degree}"

    @cache  # noqa: B019  identities are computed once
    def task(self, size: int, seed: int) -> Task:
        dim = size if self.variable == "dim" else self.dim
        assert dim is not None
        spec = MemorySpec(
            method=self.method,
            dim=dim,
            facts=self.facts,
            target="permutation",
            width=size if self.variable == "width" else None,
            rank=size // 2 if self.method == "low-rank" else None,
            degree=self.degree,
            protocol=PROTOCOLS.get(self.method),
            seed=seed,
        )
        return Task(EXPERIMENT, spec.config())


def measure_memory(**config: Any) -> dict[str, Any]:
    """Build a memory and, if it recalls everything, measure its properties."""
    from factmem.memories import bits_needed, noise_tolerated

    result = MemorySpec.from_config(config).run()
    memory, instance = result.model, result.instance
    pairs = instance.associations
    score = memory.score(pairs)
    metrics: dict[str, Any] = {"accuracy": score.accuracy, "seconds": result.seconds}
    if score.accuracy == 1:
        metrics |= {
            "parameters": score.parameters,
            "bits_per_parameter": score.bits_per_parameter,
            "min_relative_margin": score.min_relative_margin,
            "bits_needed": bits_needed(memory, pairs),
            "noise_tolerated": noise_tolerated(memory, pairs, key=instance.test_key),
        }
    return metrics


EXPERIMENT = Experiment("smallest memory", 1, measure_memory)

SMALLEST = [
    Cell("hebbian", 48, None, "dim", 41, 256, seeds=1),
    Cell("fitted-bilinear", 48, 16, "width", 3, 64, seeds=1),
    Cell("trained-mlp", 48, 16, "width", 6, 64, seeds=1),
]


def grid() -> list[Cell]:
    """Return all cells."""
    cells = []
    for facts in (512, 1024):
        cells += [
            Cell("hebbian", facts, None, "dim", facts // 5, 1024),
            Cell("low-rank", facts, None, "dim", facts // 3, 1024),
            Cell("optimal", facts, None, "dim", int(2.0 * facts**0.55), 256),
            Cell("hermite", facts, 64, "width", 4 * facts, 2**16, degree=2),
            Cell("hermite", facts, 64, "width", 16 * facts, 2**16, degree=3),
            Cell("tangent", facts, 64, "width", 4 * facts, 2**15, degree=2),
            Cell("fitted-features", facts, 64, "width", facts // 8, 2**12),
            Cell("fitted-relu", facts, 64, "width", facts // 25, 2**11),
            Cell("fitted-bilinear", facts, 64, "width", facts // 48, 2**11),
        ]
    for method, guess in (("features", 64), ("relu", 20), ("bilinear", 11)):
        cells.append(Cell(f"fitted-{method}", 1024, 128, "width", guess, 2**11, seeds=3, slow=True))
    cells += [
        Cell("hermite", 1024, 128, "width", 2048, 2**15, seeds=3, slow=True, degree=2),
        Cell("tangent", 1024, 128, "width", 2048, 2**14, seeds=3, slow=True, degree=2),
        Cell("trained-linear", 512, None, "dim", 68, 256, seeds=3, slow=True),
        Cell("trained-mlp", 512, 64, "width", 22, 2**9, seeds=3, slow=True),
    ]
    return cells


Fit = tuple[int, Metrics] | None
"""The smallest size and its metrics; None if even the limit does not store everything."""


def search_cell(cell: Cell, metrics_of: Callable[[Task], Metrics]) -> list[Fit]:
    """Find the smallest size for every seed; each search starts from the result of the last."""
    fits: list[Fit] = []
    guess = cell.guess
    for seed in range(cell.seeds):
        fit = search_size(cell, seed, guess, metrics_of)
        fits.append(fit)
        guess = cell.limit if fit is None else fit[0]
    return fits


def search_size(cell: Cell, seed: int, guess: int, metrics_of: Callable[[Task], Metrics]) -> Fit:
    """Find the smallest size that stores everything."""

    def stores(size: int) -> bool:
        metrics = metrics_of(cell.task(size, seed))
        # 100% counts only if it holds in float32 and with weights of 16 bits.
        return (metrics.get("bits_needed") or 99) <= 16

    low, high = 0, guess
    while not stores(high):
        if high >= cell.limit:
            return None
        low, high = high, min(cell.limit, max(high + 1, int(high * STEP)))
    while low == 0 and high > 1:
        lower = min(high - 1, int(high / STEP))
        if stores(lower):
            high = lower
        else:
            low = lower
    while high > low + 1 and high > BRACKET * low:
        middle = (low + high) // 2
        low, high = (low, middle) if stores(middle) else (middle, high)
    return high, metrics_of(cell.task(high, seed))


def format_row(cell: Cell, fits: list[Fit]) -> str:
    """Return a row of the table."""
    stored = [fit for fit in fits if fit is not None]
    sizes = f"{cell.facts} | {'searched' if cell.dim is None else cell.dim}"
    head = f"| {cell.name} | {sizes} | {cell.seeds}"
    if len(stored) < len(fits):
        count = len(fits) - len(stored)
        return f"{head} | none up to {cell.limit:,} for {count} of {cell.seeds} | | | | | | |"
    columns = [
        format_spread([size for size, _ in stored], "{:,.0f}"),
        *(
            format_spread([metrics[name] for _, metrics in stored], form)
            for name, form in (
                ("parameters", "{:,.0f}"),
                ("bits_per_parameter", "{:.3g}"),
                ("min_relative_margin", "{:.1e}"),
                ("bits_needed", "{:.0f}"),
                ("noise_tolerated", "{:.1e}"),
                ("seconds", "{:.2g}"),
            )
        ),
    ]
    return f"{head} | {cell.variable} " + " | ".join(columns) + " |"


def format_spread(values: list[float | None], form: str) -> str:
    """Return the median and the range."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return "none for some"
    low, middle, high = (form.format(f(numbers)) for f in (min, statistics.median, max))
    return middle if low == high else f"{middle} ({low}–{high})"


HEADER = [
    "# Parameters that each method needs",
    "",
    "Written by `benchmarks/memories.py`: the smallest size that recalls all N associations, up to",
    "5%; median and range over seeds. Embeddings are given and random, the target is a random",
    "permutation. For linear memories the dimension is searched (low-rank: with rank d/2), for",
    "MLPs the width; tangent has two neurons per unit of width. Times were measured on two cores",
    "that were partly busy.",
    "",
    "| method | N | d | seeds | smallest size | parameters | bits per parameter | relative margin "
    "| bits per weight | noise σ | time (s) |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
]


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--slow", action="store_true", help="include the slow cells")
    parser.add_argument("--only", metavar="METHOD", help="only the cells of this method")
    parser.add_argument("--out", type=Path, default=PAGE, help="file for the table")
    options = parser.parse_args()
    cells = SMALLEST if options.smallest else grid()
    cells = [cell for cell in cells if options.slow or not cell.slow]
    cells = [cell for cell in cells if options.only in (None, cell.method)]
    lines = list(HEADER)
    with open_results(options, ThisProcess) as results:
        for cell in cells:
            fits = results.get(SequentialTasks(partial(search_cell, cell)))
            if fits is None:
                print(f"not in the store: {cell.name}, N = {cell.facts}")
                continue
            lines.append(format_row(cell, fits))
            print(lines[-1], flush=True)
            if not options.smallest:
                options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
