"""How the constructions of Theorems 3 and 4 grow with the number of facts.

For every number of facts, the smallest size at which four of five seeds recall every fact, in
sampled prompts and in the worst ones, with every token on the right side of every denoiser:

* Theorem 3: S = R, D = 4, d_h = d, blocks of d/160 tokens; the search is over d.
* Theorem 4: S = R, D = 4, p = q = 1, d = 48 S, d_h = d/4, blocks of d/160 tokens; over m.
* The width of Theorem 4 against the facts per answer: S = 16, R = 4, d = 768, D = 16, 8, 4, 2.
* The tokens that one head can superpose: 1,024 random tokens in d dimensions; the largest block
  that the paper's key separates from the others, and the largest that any key separates.

Sizes grow by factors of 2^(1/8). Grid and seeds were fixed before measuring. Runs are kept in the
run store: an interrupted benchmark resumes. Writes `benchmarks/scaling.md` and `scaling.png`.

    python benchmarks/scaling.py
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from factmem._core.power_law import fit_power_law
from factmem.experiments import (
    Attention,
    AttentionMLP,
    Experiment,
    IndependentTasks,
    TableSpec,
    Task,
    TransformerSpec,
)
from factmem.plotting import draw_matplotlib, save_figure
from factmem.plotting.plot import Axis, Chart, Line, Plot
from factmem.transformer.shape import Shape
from results import Metrics, Results, SequentialTasks, ThisProcess, open_results, option_parser

FOLDER = Path(__file__).parent
SIZES = (4, 7, 11, 19, 32)
ANSWERS = (16, 8, 4, 2)
DIMS = (16, 32, 64, 128, 256)
TOKENS = 1024
SEEDS, MIN_SUCCESSES = 5, 4
BLOCK_FRACTION = 160
STEPS_PER_DOUBLING = 8
COARSE_STEP = 4


def size_at(step: int) -> int:
    """Return a size of the grid."""
    return round(2 ** (step / STEPS_PER_DOUBLING))


@dataclass(frozen=True)
class Construction:
    """A construction of growing size.

    Args:
        name: for messages.
        parameter: S, or D in the experiment with repeated answers.
        guess: the first size.
    """

    name: Literal["theorem 3", "theorem 4", "repeated answers"]
    parameter: int
    guess: int

    def spec(self, size: int, seed: int) -> TransformerSpec:
        """Return the transformer of a size: d for Theorem 3, m for Theorem 4."""
        if self.name == "repeated answers":
            table, dim = TableSpec.structured(16, 4, self.parameter), 768
        else:
            table = TableSpec.random(self.parameter, self.parameter, 4)
            dim = size if self.name == "theorem 3" else 48 * self.parameter
        block = max(1, round(dim / BLOCK_FRACTION))
        # The construction chooses the number of heads.
        if self.name == "theorem 3":
            shape, method = Shape(dim, 1, dim, 0), Attention(block_size=block)
        else:
            shape, method = Shape(dim, 1, dim // 4, size), AttentionMLP(block_size=block)
        return TransformerSpec(table=table, shape=shape, method=method, seed=seed)

    @cache  # noqa: B019  identities are computed once
    def task(self, size: int, seed: int) -> Task:
        """Return the run of a size."""
        return Task(CONSTRUCTION, self.spec(size, seed).config())

    def search(self, metrics_of: Callable[[Task], Metrics]) -> dict[str, Any]:
        """Return the smallest size at which enough seeds recall everything, and its metrics."""

        def suffices(step: int) -> bool:
            failures = 0
            for seed in range(SEEDS):
                failures += not metrics_of(self.task(size_at(step), seed))["recalled"]
                if failures > SEEDS - MIN_SUCCESSES:
                    return False
            return True

        step = round(STEPS_PER_DOUBLING * math.log2(self.guess))
        if suffices(step):
            while suffices(step - COARSE_STEP):
                step -= COARSE_STEP
            low, high = step - COARSE_STEP, step
        else:
            while not suffices(step + COARSE_STEP):
                step += COARSE_STEP
            low, high = step, step + COARSE_STEP
        while high > low + 1:
            middle = (low + high) // 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        size = size_at(high)
        return {"size": size, **metrics_of(self.task(size, 0))}


def measure_construction(**config: Any) -> dict[str, Any]:
    """Construct a transformer and test every fact."""
    result = TransformerSpec.from_config(config).run()
    recall = result.instance.recall(result.model, prompts_per_fact=2)
    margin = result.built.denoiser_margin
    return {
        "recalled": recall.accuracy == 1 and margin > 0,
        "accuracy": recall.accuracy,
        "denoiser_margin": margin,
        "parameters": result.model.shape.parameters,
        "heads": result.model.shape.heads,
    }


def measure_block(*, dim: int, any_key: bool, tokens: int, seed: int) -> dict[str, Any]:
    """Find the largest block that is separated from EOS and from all other tokens."""
    import jax.numpy as jnp
    import jax.random as jr

    from factmem.memories.embeddings import sphere
    from factmem.transformer import denoiser_margins
    from factmem.transformer.compiler.keys import widest_key
    from factmem.transformer.constructions.denoiser import superposed_keys

    vectors = np.asarray(sphere(tokens, dim, key=jr.key(seed)), np.float64)

    def separates(size: int) -> bool:
        blocks = np.arange(tokens)[None, :] < size
        if not any_key:
            keys = superposed_keys(jnp.asarray(vectors), blocks)
            scores = vectors @ np.asarray(keys, np.float64).T
            return bool(denoiser_margins(scores, blocks).min() > 0)
        differences = vectors[:-1] - vectors[-1]
        signed = np.where(blocks[0, :-1, None], differences, -differences)
        return widest_key(signed) is not None

    low, high = 0, 1
    while high < tokens and separates(high):
        low, high = high, 2 * high
    while high > low + 1:
        middle = (low + high) // 2
        low, high = (middle, high) if separates(middle) else (low, middle)
    return {"block": low}


CONSTRUCTION = Experiment("smallest construction", 1, measure_construction)
BLOCK = Experiment("largest block", 1, measure_block)


def sorted_blocks(
    dim: int, any_key: bool, metrics_of: Callable[[Task], Metrics], seeds: int = SEEDS
) -> list[int]:
    """Return the largest blocks of all seeds."""
    config = {"dim": dim, "any_key": any_key, "tokens": TOKENS}
    tasks = [Task(BLOCK, {**config, "seed": seed}) for seed in range(seeds)]
    return sorted(metrics_of(task)["block"] for task in tasks)


# ---- hidden logarithms ---------------------------------------------------------------------------


def logarithms(name: str) -> list[float]:
    """Return log n for the n Gaussian errors whose maximum must stay below a margin of 1.

    Their variance is proportional to R/d for Theorem 3, with n = K (R + D) competitors in A_s or
    A_r, and to C(a)/m for Theorem 4, with n = K |A|. So d and m must grow with log n.
    """
    competitors = {"Theorem 3": lambda size: size + 4, "Theorem 4, MLP": lambda size: 4 * size}
    return [math.log(size**2 * competitors[name](size)) for size in SIZES]


def slope(facts: list[float], parameters: list[float]) -> tuple[float, float]:
    """Return the slope of log parameters against log facts, and the half-width of its interval."""
    law = fit_power_law(facts, parameters)
    return law.exponent, law.high - law.exponent


# ---- the report ----------------------------------------------------------------------------------


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the page and the plot")
    options = parser.parse_args()
    with open_results(options, ThisProcess) as results:
        if options.smallest:
            run_smallest(results)
            return

        def search(name: Any, parameter: int, guess: int) -> dict[str, Any]:
            construction = Construction(name, parameter, guess)
            result = _stored(results.get(SequentialTasks(construction.search)))
            print(f"{name}, {parameter}: {result['size']}", flush=True)
            return result

        theorem3 = [search("theorem 3", size, 40 * size) for size in SIZES]
        repeated = [search("repeated answers", answers, 2048) for answers in ANSWERS]
        theorem4 = [search("theorem 4", size, 128 * size) for size in SIZES]
        blocks = {
            (dim, any_key): _stored(
                results.get(SequentialTasks(partial(sorted_blocks, dim, any_key)))
            )
            for dim in DIMS
            for any_key in (False, True)
        }
    facts = [float(size**2) for size in SIZES]
    curves = {
        "Theorem 3": [row["parameters"] for row in theorem3],
        "Theorem 4, MLP": [
            2 * 48 * size * row["size"] for size, row in zip(SIZES, theorem4, strict=True)
        ],
        "Theorem 4, all": [row["parameters"] for row in theorem4],
    }
    fractional = [
        4 * 2 * size * BLOCK_FRACTION * row["size"]
        for size, row in zip(SIZES, theorem3, strict=True)
    ]
    rows = [
        ("Theorem 3", curves["Theorem 3"]),
        ("– with blocks of exactly d/160 tokens", fractional),
        ("– also divided by log n", np.divide(fractional, logarithms("Theorem 3"))),
        ("Theorem 4, MLP", curves["Theorem 4, MLP"]),
        ("– divided by log n", np.divide(curves["Theorem 4, MLP"], logarithms("Theorem 4, MLP"))),
        ("Theorem 4, attention and MLP", curves["Theorem 4, all"]),
    ]
    plot = _plot(facts, curves, repeated, blocks)
    save_figure(draw_matplotlib(plot), options.out / "scaling.png")
    text = _page(facts, theorem3, theorem4, rows, repeated, blocks)
    (options.out / "scaling.md").write_text(text)
    print(text)


def _stored(result: Any) -> Any:
    if result is None:
        raise SystemExit("some runs are not in the store")
    return result


def run_smallest(results: Results) -> None:
    """Run one small case of each kind."""
    cases = (("theorem 3", 2, 40), ("theorem 4", 2, 128), ("repeated answers", 16, 128))
    tasks = [Construction(name, parameter, size).task(size, 0) for name, parameter, size in cases]
    results.get(IndependentTasks(tuple(tasks)))
    for any_key in (False, True):
        results.get(SequentialTasks(partial(sorted_blocks, 16, any_key, seeds=1)))


def _page(
    facts: list[float],
    theorem3: list[dict[str, Any]],
    theorem4: list[dict[str, Any]],
    rows: list[tuple[str, Any]],
    repeated: list[dict[str, Any]],
    blocks: dict[tuple[int, bool], list[int]],
) -> str:
    lines = [
        "# How the constructions grow with the number of facts",
        "",
        "Written by `benchmarks/scaling.py`: the smallest size at which four of five seeds recall",
        "every fact; D = 4, random unit embeddings, S + R noise tokens, T = 32.",
        "",
        "![Parameters against facts](scaling.png)",
        "",
        "| facts | Theorem 3: d = d_h | block | heads | parameters "
        "| Theorem 4: d | m | MLP parameters | all parameters |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for size, k, row3, row4 in zip(SIZES, facts, theorem3, theorem4, strict=True):
        block = max(1, round(row3["size"] / BLOCK_FRACTION))
        lines.append(
            f"| {k:,.0f} | {row3['size']:,} | {block} | {row3['heads']} | {row3['parameters']:,} "
            f"| {48 * size:,} | {row4['size']:,} | {2 * 48 * size * row4['size']:,} "
            f"| {row4['parameters']:,} |"
        )
    lines += ["", "Slopes of log parameters against log facts, with 95% intervals:", ""]
    lines += ["| | slope |", "|---|---|"]
    for name, parameters in rows:
        value, half = slope(facts, parameters)
        lines.append(f"| {name} | {value:.2f} ± {half:.2f} |")
    lines += [
        "",
        "A block has at least one token, so below d = 240 it cannot be a fixed fraction of d: the",
        "second row counts 160 (S + R)/d heads instead. The theorems hide the logarithm log n: the",
        "largest of n Gaussian errors must stay below a margin of 1, with n = K (R + D) for",
        "Theorem 3 and K |A| for Theorem 4.",
        "",
        "## The width of Theorem 4 against the facts per answer",
        "",
        "64 facts (S = 16, R = 4), d = 768.",
        "",
        "| max C(a) | smallest m | m / C(a) |",
        "|---|---|---|",
    ]
    for answers, row in zip(ANSWERS, repeated, strict=True):
        count = 16 // answers
        lines.append(f"| {count} | {row['size']:,} | {row['size'] / count:,.0f} |")
    lines += [
        "",
        "## The tokens that one head can superpose",
        "",
        f"A random block among {TOKENS:,} unit vectors, one of which is EOS; median and range over",
        "five seeds.",
        "",
        "| d | the paper's key | divided by d | any key | divided by d |",
        "|---|---|---|---|---|",
    ]
    for dim in DIMS:
        cells = []
        for any_key in (False, True):
            low, middle, high = (blocks[dim, any_key][i] for i in (0, SEEDS // 2, SEEDS - 1))
            cells += [f"{middle} ({low}–{high})", f"{middle / dim:.3f}"]
        lines.append(f"| {dim} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _plot(
    facts: list[float],
    curves: dict[str, list[float]],
    repeated: list[dict[str, Any]],
    blocks: dict[tuple[int, bool], list[int]],
) -> Plot:
    lines = []
    for name, parameters in curves.items():
        value, half = slope(facts, parameters)
        lines.append(_line(f"{name}: slope {value:.2f} ± {half:.2f}", facts, parameters))
    lines.append(_line("slope 1", facts, [3e4 * k for k in facts], "reference"))
    counts = [16 // answers for answers in ANSWERS]
    widths = [
        _line("smallest m", counts, [row["size"] for row in repeated]),
        _line("m = C(a)", counts, counts, "reference"),
    ]
    block_lines = []
    for any_key, name in ((False, "the paper's key"), (True, "any key")):
        medians = {dim: blocks[dim, any_key][SEEDS // 2] for dim in DIMS}
        positive = [dim for dim in DIMS if medians[dim] > 0]
        block_lines.append(_line(name, positive, [medians[dim] for dim in positive]))
    block_lines.append(_line("d tokens", DIMS, DIMS, "reference"))
    panels = (
        Chart(
            _axis("facts", facts),
            Axis("parameters", "log"),
            tuple(lines),
            title="Smallest size",
        ),
        Chart(
            _axis("facts per answer, C(a)", counts),
            Axis("m", "log", limits=(0.8, None)),
            tuple(widths),
            title="Theorem 4: smallest width",
        ),
        Chart(
            _axis("d", DIMS),
            Axis("tokens", "log", limits=(0.8, 1.5 * max(DIMS))),
            tuple(block_lines),
            title=f"Largest block of {TOKENS:,} tokens",
        ),
    )
    return Plot("scaling", "", panels, columns=3)


def _line(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    kind: Literal["measured", "reference"] = "measured",
) -> Line:
    return Line(name, tuple(map(float, x)), tuple(map(float, y)), kind=kind)


def _axis(label: str, positions: Sequence[float]) -> Axis:
    return Axis(label, "log", tuple((float(x), f"{x:,.0f}") for x in positions))


if __name__ == "__main__":
    main()
