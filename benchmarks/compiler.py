"""How many facts per parameter the compiler reaches, certified for every prompt.

D = 8, random Gaussian embeddings, S + R noise tokens, T = 32. For S = R = 16 and 30 the free search
of `compile_smallest`, which goes down by 3 % of the parameters from shape to shape until one does
not certify every fact; for 60 and 90, where a fit takes minutes, one given shape. The result is
asked for every fact in sampled prompts, 10^5 at least, and in those that each head's strongest
noise token fills.

Grid and seeds were fixed before measuring. Every search is kept as soon as it is done: started
again, the script does what is missing.

    python benchmarks/compiler.py --only 30
"""

import argparse
import math
from pathlib import Path
from typing import Any

import jax.random as jr

from factmem._core.timing import Stopwatch
from factmem.facts import FactTable, PromptDistribution
from factmem.transformer import (
    EXPERIMENTS,
    Embeddings,
    Probe,
    Shape,
    compile_facts,
    compile_smallest,
    recall,
)
from kept import RESULTS, Kept, MissingError

FOLDER = Path(__file__).parent
VERSION = 1
SEEDS = {16: 3, 30: 3, 60: 1, 90: 1}
GIVEN = {60: Shape(24, 30, 1, 290), 90: Shape(32, 40, 1, 585)}
PROMPTS = 10**5


def measure(size: int, seed: int) -> dict[str, Any]:
    asked = PromptDistribution.of(FactTable.random(size, size, 8, seed=seed))
    embedding_key, key, prompt_key = jr.split(jr.key(seed), 3)

    def embeddings(dim: int) -> Embeddings:
        return Embeddings.draw(embedding_key, dim, asked.vocabulary, EXPERIMENTS)

    with Stopwatch() as watch:
        if size in GIVEN:
            shape = GIVEN[size]
            best = compile_facts(key, asked, embeddings(shape.dim), shape)
            probes = (Probe(shape, best.certificate.certified_accuracy),)
        else:
            best, probes = compile_smallest(key, asked, embeddings)
    for probe in probes:
        print(f"    {probe.shape}: {probe.certified_accuracy:.4f}", flush=True)
    found = recall(best.model, asked, prompt_key, math.ceil(PROMPTS / asked.facts))
    shape = best.model.shape
    return {
        "shape": [shape.dim, shape.heads, shape.head_dim, shape.width],
        "parameters": shape.parameters,
        "stored_numbers": best.model.stored_numbers,
        "certified_accuracy": best.certificate.certified_accuracy,
        "min_certified_margin": best.certificate.min_certified_margin,
        "accuracy": found.accuracy,
        "prompts": found.prompts * asked.facts,
        "relative_margin": found.relative_margin,
        "bits": asked.table.association_bits,
        "probes": len(probes),
        "seconds": watch.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, help="this number of subjects alone")
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--read", action="store_true", help="run nothing: what is kept already")
    parser.add_argument("--kept", type=Path, default=RESULTS / "compiler.jsonl")
    options = parser.parse_args()
    kept = Kept(options.kept, complete=options.read)
    lines = [
        "# Facts per parameter of compiled transformers",
        "",
        "Made by `benchmarks/compiler.py`, whose head says how: S = R, D = 8, every fact certified",
        "over every prompt in float32 with weights of 16 bits; parameters as the paper counts,",
        "4·H·d·d_h + 2·m·d. Seconds are of the whole search,",
        "or of one compilation where one shape alone was tried.",
        "",
        "| facts | seed | (d, H, d_h, m) | parameters | facts per parameter | bits per parameter "
        "| stored numbers | prompts asked | accuracy | certified | certified margin "
        "| relative margin "
        "| shapes tried | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size, seeds in SEEDS.items():
        for seed in range(seeds):
            if options.only not in (None, size) or options.seed not in (None, seed):
                continue
            what = {"size": size, "seed": seed, "version": VERSION}
            try:
                row = kept.get(what, lambda size=size, seed=seed: measure(size, seed))
            except MissingError:
                continue
            facts = size**2
            shape = ", ".join(map(str, row["shape"]))
            lines.append(
                f"| {facts:,} | {seed} | ({shape}) | {row['parameters']:,} "
                f"| {facts / row['parameters']:.3f} | {row['bits'] / row['parameters']:.2f} "
                f"| {row['stored_numbers']:,} | {row['prompts']:,} | {row['accuracy']} "
                f"| {row['certified_accuracy']:.4f} "
                f"| {row['min_certified_margin']:.1e} | {row['relative_margin']:.1e} "
                f"| {row['probes']} | {row['seconds']:.0f} |"
            )
            print(lines[-1], flush=True)
    if options.only is None and options.seed is None:
        (FOLDER / "compiler.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
