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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.random as jr

from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import (
    THEORY,
    Embeddings,
    attention_construction,
    mlp_construction,
    recall,
)
from kept import RESULTS, Kept

FOLDER = Path(__file__).parent
VERSION = 1
SIZES = (4, 7, 11, 19, 32)
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
    asked = PromptDistribution.of(table)
    embedding_key, weight_key, prompt_key = jr.split(jr.key(seed), 3)
    phi = Embeddings.draw(embedding_key, dim, asked.vocabulary, THEORY)
    block = max(1, round(dim / FRACTION))
    given = (weight_key, table, asked.vocabulary, phi)
    if width is None:
        built = attention_construction(*given, dim, block=block)
    else:
        built = mlp_construction(*given, dim // 4, width, block=block)
    found = recall(built.model, asked, prompt_key, sampled=2)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", type=Path, default=RESULTS / "scaling.jsonl")
    options = parser.parse_args()
    kept = Kept(options.kept)
    for subjects in SIZES:
        print(subjects, smallest("theorem 3", theorem3, subjects, 40 * subjects, kept), flush=True)
    for answers in (16, 8, 4, 2):
        print(answers, smallest("answers", repeated_answers, answers, 2048, kept), flush=True)
    for subjects in SIZES:
        print(subjects, smallest("theorem 4", theorem4, subjects, 128 * subjects, kept), flush=True)


if __name__ == "__main__":
    main()
