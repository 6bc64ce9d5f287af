"""How many numbers each method needs to store N associations, all of them.

For every method and seed the smallest width (for linear memories: the smallest dimension) at
which every association is recalled, in float32 and with weights of 16 bits, by bisection until the
bracket is 5 % wide; then what that memory is worth: numbers, bits per parameter, relative margin,
bits per weight that it needs, noise that it stands, seconds to make it (compilation not counted).
Random unit embeddings, given; a random permutation as the target. Grid, seeds and limits stand in
`grid`, fixed before measuring.

Every probe is kept in a file as soon as it is done: started again, the script does what is missing.

    python benchmarks/memories.py            # N = 512 and 1024 at d = 64, five seeds
    python benchmarks/memories.py --slow     # and d = 128, and the trained methods, three seeds
"""

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.random as jr

from factmem._core.timing import Stopwatch
from factmem.experiments.memory_methods import build
from factmem.memories import Associations, bits_needed, noise_tolerated
from factmem.training import (
    LINEAR_PROTOCOL,
    MLP_PROTOCOL,
    MemoryProtocol,
    linear_start,
    mlp_start,
    train_memories,
)
from kept import RESULTS, Kept, MissingError

FOLDER = Path(__file__).parent
KEPT = RESULTS / "memories.jsonl"
TABLE = FOLDER / "memories.md"
BRACKET = 1.05
VERSION = 1
"""To be raised when what a probe measures changes its meaning."""


@dataclass(frozen=True)
class Cell:
    """One method at one size.

    `size` is what the search varies: width, rank or dim; `guess` is where it starts, `limit`
    where it gives up.
    """

    method: str
    facts: int
    dim: int | None
    size: str
    guess: int
    limit: int
    seeds: int = 5
    slow: bool = False
    degree: int | None = None

    @property
    def name(self) -> str:
        return self.method if self.degree is None else f"{self.method}, k = {self.degree}"


def grid() -> list[Cell]:
    cells = []
    for facts in (512, 1024):
        cells += [
            Cell("hebbian", facts, None, "dim", facts // 5, 1024),
            Cell("low-rank", facts, None, "dim", facts // 3, 1024),
            Cell("maximal", facts, None, "dim", int(2.0 * facts**0.55), 256),
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


def probe(cell: Cell, size: int, seed: int) -> dict[str, Any]:
    """Makes one memory and, if it recalls everything, says what it is worth."""
    dim = size if cell.size == "dim" else cell.dim
    pair_key, method_key, noise_key = jr.split(jr.key(seed), 3)
    pairs = Associations.draw(pair_key, cell.facts, dim, target="permutation")
    with Stopwatch() as watch:
        memory = jax.block_until_ready(_memory(cell, size, dim, method_key, pairs))
    score = memory.score(pairs)
    result: dict[str, Any] = {"accuracy": score.accuracy, "seconds": watch.seconds}
    if score.accuracy == 1:
        result |= {
            "numbers": score.parameters,
            "bits_per_parameter": score.bits_per_parameter,
            "relative_margin": score.relative_margin,
            "bits_needed": bits_needed(memory, pairs),
            "noise_tolerated": noise_tolerated(memory, pairs, noise_key),
        }
    return result


def _memory(cell: Cell, size: int, dim: int, key: Any, pairs: Associations) -> Any:
    if cell.method.startswith("trained"):
        # The paper's protocol, but for its criterion: here every association counts.
        if cell.method == "trained-linear":
            start, paper = linear_start(key, dim), LINEAR_PROTOCOL
        else:
            start, paper = mlp_start(key, dim, size), MLP_PROTOCOL
        protocol = MemoryProtocol(paper.learning_rate, paper.steps, paper.checks, criterion=1.0)
        return train_memories([start], [pairs], protocol)[0].memory
    sizes = {"width": size} if cell.size == "width" else {}
    if cell.method == "low-rank":
        sizes = {"rank": size // 2}
    if cell.degree is not None:
        sizes["degree"] = cell.degree
    return build(cell.method, key, pairs, **sizes).memory


def smallest(cell: Cell, seed: int, guess: int, kept: Kept) -> tuple[int, dict[str, Any]] | None:
    """The smallest size that stores everything, and its probe; None if the limit does not."""

    def stores(size: int) -> bool:
        what = {
            "method": cell.name,
            "facts": cell.facts,
            "dim": cell.dim,
            "size": size,
            "seed": seed,
            "version": VERSION,
        }
        found[size] = kept.get(what, lambda: probe(cell, size, seed))
        # 100 % counts only if it holds in float32 and with weights of 16 bits.
        success = (found[size].get("bits_needed") or 99) <= 16
        verdict = "stored" if success else f"accuracy {found[size]['accuracy']:.3f}"
        print(
            f"  {cell.name}, N = {cell.facts}, {cell.size} {size}, seed {seed}: {verdict}, "
            f"{found[size]['seconds']:.1f} s",
            flush=True,
        )
        return success

    found: dict[int, dict[str, Any]] = {}
    low, high = 0, guess
    while not stores(high):
        if high >= cell.limit:
            return None
        low, high = high, min(cell.limit, max(high + 1, int(high * 1.15)))
    while low == 0 and high > 1:
        lower = min(high - 1, int(high / 1.15))
        if stores(lower):
            high = lower
        else:
            low = lower
    while high > low + 1 and high > BRACKET * low:
        middle = (low + high) // 2
        low, high = (low, middle) if stores(middle) else (middle, high)
    return high, found[high]


def measured(cell: Cell, kept: Kept) -> list[tuple[int, dict[str, Any]] | None]:
    results, guess = [], cell.guess
    for seed in range(cell.seeds):
        result = smallest(cell, seed, guess, kept)
        results.append(result)
        guess = cell.limit if result is None else result[0]
    return results


def row(cell: Cell, results: list[tuple[int, dict[str, Any]] | None]) -> str:
    stored = [result for result in results if result is not None]
    where = f"{cell.facts} | {'found' if cell.dim is None else cell.dim}"
    head = f"| {cell.name} | {where} | {cell.seeds}"
    if len(stored) < len(results):
        count = len(results) - len(stored)
        return f"{head} | none up to {cell.limit:,} for {count} of {cell.seeds} | | | | | | |"
    columns = [
        spread([size for size, _ in stored], "{:,.0f}"),
        *(
            spread([probe[key] for _, probe in stored], form)
            for key, form in (
                ("numbers", "{:,.0f}"),
                ("bits_per_parameter", "{:.3g}"),
                ("relative_margin", "{:.1e}"),
                ("bits_needed", "{:.0f}"),
                ("noise_tolerated", "{:.1e}"),
                ("seconds", "{:.2g}"),
            )
        ),
    ]
    return f"{head} | {cell.size} " + " | ".join(columns) + " |"


def spread(values: list[float | None], form: str) -> str:
    """Median and range."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "none for some"
    low, middle, high = (form.format(f(known)) for f in (min, statistics.median, max))
    return middle if low == high else f"{middle} ({low}–{high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slow", action="store_true", help="the slow cells too")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where probes are kept")
    parser.add_argument("--table", type=Path, default=TABLE, help="where the table goes")
    parser.add_argument("--only", help="cells of this method alone")
    parser.add_argument("--read", action="store_true", help="run nothing: what is kept already")
    options = parser.parse_args()
    kept = Kept(options.kept, complete=options.read)
    cells = [cell for cell in grid() if options.slow or not cell.slow]
    cells = [cell for cell in cells if options.only in (None, cell.method)]
    lines = [
        "# Numbers that each method needs",
        "",
        "Made by `benchmarks/memories.py`, whose head says how: the smallest size that recalls all",
        "N associations, bracketed to 5 %; median and range over seeds. Embeddings are random and",
        "given, the target is a random permutation. For linear memories the dimension is searched",
        "for (low-rank: at rank d/2), for MLPs the width; tangent has two neurons for each of its",
        "width. Seconds are of two cores that had other work at times.",
        "",
        "| method | N | d | seeds | smallest size | numbers | bits per parameter | relative margin "
        "| bits a weight | noise σ | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        try:
            lines.append(row(cell, measured(cell, kept)))
        except MissingError:
            continue
        print(lines[-1], flush=True)
        options.table.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
