"""How the constructions of Theorems 3 and 4 grow with the number of facts.

For every number of facts the smallest size at which four seeds of five recall every fact, in
sampled prompts and in the worst ones, with every token on the right side of every denoiser:

* Theorem 3: S = R, D = 4, d_h = d, blocks of d/160 tokens; the search is over d.
* Theorem 4: S = R, D = 4, p = q = 1, d = 48 S, d_h = d/4, blocks of d/160 tokens; over m.
* The width of Theorem 4 against the facts of one answer: S = 16, R = 4, d = 768, D = 16, 8, 4, 2.
* The tokens that one head can superpose: 1,024 random tokens in d dimensions; the largest block
  that the paper's key separates from the others, and the largest that any key does.

Sizes grow by steps of 2^(1/8). Grid and seeds were fixed before measuring. Every probe is kept as
soon as it is done: started again, the script does what is missing.

    python benchmarks/scaling.py
"""

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from factmem._core.power_law import fit_power_law
from factmem.facts import FactTable, PromptDistribution
from factmem.memories.embeddings import sphere
from factmem.plotting import draw_matplotlib, save_figure
from factmem.plotting.plot import Axis, Chart, Line, Plot
from factmem.transformer import (
    THEORY_CONVENTION,
    Embeddings,
    attention_construction,
    denoiser_margins,
    mlp_construction,
    recall,
)
from factmem.transformer.compiler.keys import widest_key
from factmem.transformer.constructions.denoiser import superposed_keys
from kept import RESULTS, Kept

FOLDER = Path(__file__).parent
VERSION = 1
SIZES = (4, 7, 11, 19, 32)
ANSWERS = (16, 8, 4, 2)
DIMS = (16, 32, 64, 128, 256)
TOKENS = 1024
SEEDS, ENOUGH = 5, 4
FRACTION = 160
STEPS_A_DOUBLING = 8


def size_at(step: int) -> int:
    return round(2 ** (step / STEPS_A_DOUBLING))


def theorem3(subjects: int, dim: int, seed: int) -> dict[str, Any]:
    table = FactTable.random(subjects, subjects, 4, seed=seed)
    return _probe(table, dim, seed, None)


def theorem4(subjects: int, width: int, seed: int) -> dict[str, Any]:
    table = FactTable.random(subjects, subjects, 4, seed=seed)
    return _probe(table, 48 * subjects, seed, width)


def repeated_answers(answers: int, width: int, seed: int) -> dict[str, Any]:
    return _probe(FactTable.structured(16, 4, answers), 768, seed, width)


def _probe(table: FactTable, dim: int, seed: int, width: int | None) -> dict[str, Any]:
    """Builds one transformer (without an MLP: Theorem 3) and asks it for everything."""
    asked = PromptDistribution.from_table(table)
    embedding_key, weight_key, prompt_key = jr.split(jr.key(seed), 3)
    phi = Embeddings.draw(dim, asked.vocabulary, THEORY_CONVENTION, key=embedding_key)
    block = max(1, round(dim / FRACTION))
    if width is None:
        built = attention_construction(asked, phi, dim, key=weight_key, block_size=block)
    else:
        built = mlp_construction(
            asked, phi, dim // 4, width, key=weight_key, block_size=block
        )
    found = recall(built.model, asked, key=prompt_key, prompts_per_fact=2)
    return {
        "recalled": found.accuracy == 1 and built.denoiser_margin > 0,
        "accuracy": found.accuracy,
        "denoiser_margin": built.denoiser_margin,
        "parameters": built.model.shape.parameters,
        "heads": built.model.shape.heads,
    }


def smallest(
    name: str,
    measure: Callable[[int, int, int], dict[str, Any]],
    given: int,
    guess: int,
    kept: Kept,
) -> dict[str, Any]:
    """The smallest size on the grid that enough seeds are content with."""
    probes: dict[int, list[dict[str, Any]]] = {}

    def suffices(step: int) -> bool:
        probes[step] = []
        for seed in range(SEEDS):
            what = {
                "experiment": name,
                "given": given,
                "size": size_at(step),
                "seed": seed,
                "version": VERSION,
            }
            probes[step].append(
                kept.get(what, lambda seed=seed: measure(given, size_at(step), seed))
            )
            failures = sum(not probe["recalled"] for probe in probes[step])
            if failures > SEEDS - ENOUGH:
                break
        good = failures <= SEEDS - ENOUGH
        print(
            f"  {name}, {given}: {size_at(step)} {'suffices' if good else 'is too few'}", flush=True
        )
        jax.clear_caches()
        return good

    step = round(STEPS_A_DOUBLING * math.log2(guess))
    if suffices(step):
        while suffices(step - 4):
            step -= 4
        low, high = step - 4, step
    else:
        while not suffices(step + 4):
            step += 4
        low, high = step, step + 4
    while high > low + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return {"size": size_at(high), **probes[high][0]}


# ---- what a head can superpose -------------------------------------------------------------------


def superposed(dim: int, any_key: bool, seed: int) -> dict[str, Any]:
    """The largest block that is separated from EOS and from all other of 1,024 tokens."""
    tokens = np.asarray(sphere(TOKENS, dim, key=jr.key(seed)), np.float64)

    def separates(size: int) -> bool:
        blocks = np.arange(TOKENS)[None, :] < size
        if not any_key:
            scores = tokens @ np.asarray(superposed_keys(jnp.asarray(tokens), blocks), np.float64).T
            return bool(denoiser_margins(scores, blocks).min() > 0)
        apart = tokens[:-1] - tokens[-1]
        return widest_key(np.where(blocks[0, :-1, None], apart, -apart)) is not None

    low, high = 0, 1
    while high < TOKENS and separates(high):
        low, high = high, 2 * high
    while high > low + 1:
        middle = (low + high) // 2
        low, high = (middle, high) if separates(middle) else (low, middle)
    return {"block": low}


# ---- what the logarithms explain -----------------------------------------------------------------


def logarithms(name: str) -> list[float]:
    """log n for the n Gaussian errors of which the largest must stay below a margin of 1.

    Their variance goes as R/d for Theorem 3, with n = K (R + D) competitors in A_s or A_r, and as
    C(a)/m for Theorem 4, with n = K |A|: so d, respectively m, must grow with log n.
    """
    competitors = {"Theorem 3": lambda size: size + 4, "Theorem 4, MLP": lambda size: 4 * size}
    return [math.log(size**2 * competitors[name](size)) for size in SIZES]


def slope(facts: list[float], parameters: list[float]) -> tuple[float, float]:
    """Of log parameters against log facts, and half the width of its 95 % interval."""
    law = fit_power_law(facts, parameters)
    return law.exponent, law.high - law.exponent


# ---- the report ----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", type=Path, default=RESULTS / "scaling.jsonl")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where table and plot go")
    options = parser.parse_args()
    kept = Kept(options.kept)
    three = [smallest("theorem 3", theorem3, size, 40 * size, kept) for size in SIZES]
    repeated = [smallest("answers", repeated_answers, each, 2048, kept) for each in ANSWERS]
    four = [smallest("theorem 4", theorem4, size, 128 * size, kept) for size in SIZES]
    heads = {
        (dim, any_key): _median_block(dim, any_key, kept)
        for dim in DIMS
        for any_key in (False, True)
    }
    facts = [float(size**2) for size in SIZES]
    curves = {
        "Theorem 3": [row["parameters"] for row in three],
        "Theorem 4, MLP": [
            2 * 48 * size * row["size"] for size, row in zip(SIZES, four, strict=True)
        ],
        "Theorem 4, all": [row["parameters"] for row in four],
    }
    fractional = [
        4 * 2 * size * FRACTION * row["size"] for size, row in zip(SIZES, three, strict=True)
    ]
    rows = [
        ("Theorem 3", curves["Theorem 3"]),
        ("– blocks of exactly d/160 tokens", fractional),
        ("– and divided by log n", np.divide(fractional, logarithms("Theorem 3"))),
        ("Theorem 4, MLP", curves["Theorem 4, MLP"]),
        ("– divided by log n", np.divide(curves["Theorem 4, MLP"], logarithms("Theorem 4, MLP"))),
        ("Theorem 4, attention and MLP", curves["Theorem 4, all"]),
    ]
    plot = _plot(facts, curves, repeated, heads)
    save_figure(draw_matplotlib(plot), options.out / "scaling.png")
    text = _report(facts, three, four, rows, repeated, heads)
    (options.out / "scaling.md").write_text(text)
    print(text)


def _median_block(dim: int, any_key: bool, kept: Kept) -> list[int]:
    found = []
    for seed in range(SEEDS):
        what = {"experiment": "head", "dim": dim, "any_key": any_key, "seed": seed}
        measure = partial(superposed, dim, any_key, seed)
        found.append(kept.get(what | {"version": VERSION}, measure)["block"])
    print(
        f"  a head, d = {dim}, {'any key' if any_key else 'the superposed key'}: {found}",
        flush=True,
    )
    return sorted(found)


def _report(
    facts: list[float],
    three: list[dict[str, Any]],
    four: list[dict[str, Any]],
    rows: list[tuple[str, Any]],
    repeated: list[dict[str, Any]],
    heads: dict[tuple[int, bool], list[int]],
) -> str:
    lines = [
        "# How the constructions grow with the number of facts",
        "",
        "Made by `benchmarks/scaling.py`, whose head says how: the smallest size at which four",
        "seeds of five recall every fact; D = 4, random unit embeddings, S + R noise tokens,",
        "T = 32.",
        "",
        "![Parameters against facts](scaling.png)",
        "",
        "| facts | Theorem 3: d = d_h | block | heads | parameters "
        "| Theorem 4: d | m | parameters of the MLP | all |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for size, k, row3, row4 in zip(SIZES, facts, three, four, strict=True):
        block = max(1, round(row3["size"] / FRACTION))
        lines.append(
            f"| {k:,.0f} | {row3['size']:,} | {block} | {row3['heads']} | {row3['parameters']:,} "
            f"| {48 * size:,} | {row4['size']:,} | {2 * 48 * size * row4['size']:,} "
            f"| {row4['parameters']:,} |"
        )
    lines += ["", "Slopes of log parameters against log facts, with 95 % intervals:", ""]
    lines += ["| | slope |", "|---|---|"]
    for name, parameters in rows:
        value, half = slope(facts, parameters)
        lines.append(f"| {name} | {value:.2f} ± {half:.2f} |")
    lines += [
        "",
        "A block has at least one token, so that below d = 240 a fixed fraction of d is not to be",
        "had: the second row counts 160 (S + R)/d heads instead. log n is the logarithm that the",
        "theorems hide: of n Gaussian errors the largest must stay below a margin of 1, with",
        "n = K (R + D) for Theorem 3 and K |A| for Theorem 4.",
        "",
        "## The width of Theorem 4 against the facts of one answer",
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
        f"A random block among {TOKENS:,} unit vectors, EOS one of them; median and range over",
        "five seeds.",
        "",
        "| d | the paper's key | over d | any key | over d |",
        "|---|---|---|---|---|",
    ]
    for dim in DIMS:
        cells = []
        for any_key in (False, True):
            low, middle, high = (heads[dim, any_key][i] for i in (0, SEEDS // 2, SEEDS - 1))
            cells += [f"{middle} ({low}–{high})", f"{middle / dim:.3f}"]
        lines.append(f"| {dim} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _plot(
    facts: list[float],
    curves: dict[str, list[float]],
    repeated: list[dict[str, Any]],
    heads: dict[tuple[int, bool], list[int]],
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
    blocks = []
    for any_key, name in ((False, "the paper's key"), (True, "any key")):
        medians = {dim: heads[dim, any_key][SEEDS // 2] for dim in DIMS}
        positive = [dim for dim in DIMS if medians[dim] > 0]
        blocks.append(_line(name, positive, [medians[dim] for dim in positive]))
    blocks.append(_line("d tokens", DIMS, DIMS, "reference"))
    panels = (
        Chart(
            _axis("facts", facts),
            Axis("parameters", "log"),
            tuple(lines),
            title="Smallest size",
        ),
        Chart(
            _axis("facts of one answer, C(a)", counts),
            Axis("m", "log", limits=(0.8, None)),
            tuple(widths),
            title="Theorem 4: smallest width",
        ),
        Chart(
            _axis("d", DIMS),
            Axis("tokens", "log", limits=(0.8, 1.5 * max(DIMS))),
            tuple(blocks),
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
