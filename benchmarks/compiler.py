"""How many facts per parameter the compiler stores, certified for every prompt.

D = 8, random Gaussian embeddings, S + R noise tokens, T = 32. For S = R = 16 and 30, the free
search of `compile_smallest`: from shape to shape it reduces the parameters by 3% until a shape
does not certify every fact. For 30, 60 and 90, a given shape. Every fact is then tested on sampled
prompts, at least 10^5 in all, and on prompts filled with the strongest noise token of each head.

Seeds begin at 200: no setting was chosen with them. Runs are kept in the run store: an interrupted
benchmark resumes.

    python benchmarks/compiler.py [--only 30] [--seed 0]
"""

import math
from pathlib import Path
from typing import Any

from factmem.experiments import Compile, Experiment, TableSpec, Task, TransformerSpec
from factmem.transformer.shape import Shape
from results import Metrics, SequentialTasks, ThisProcess, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
CASES: list[tuple[int, Shape | None, int]] = [
    (16, None, 3),
    (30, None, 3),
    (30, Shape(32, 8, 4, 32), 5),
    (60, Shape(24, 30, 1, 290), 1),
    (90, Shape(32, 40, 1, 585), 1),
]
"""S = R, a shape or None for the smallest one, and the number of seeds."""
SMALLEST: list[tuple[int, Shape | None, int]] = [(4, None, 1), (6, Shape(16, 4, 4, 16), 1)]
FIRST_SEED = 200
PROMPTS = 10**5


def compiler_task(size: int, shape: Shape | None, seed: int) -> Task:
    """Return the task of S = R = size."""
    table = TableSpec.random(size, size, 8)
    spec = TransformerSpec(table=table, shape=shape, method=Compile(), seed=seed)
    return Task(EXPERIMENT, {**spec.config(), "prompts": PROMPTS})


def measure_compiler(*, prompts: int, **config: Any) -> dict[str, Any]:
    """Compile a table and test the transformer on this many prompts or a little more."""
    result = TransformerSpec.from_config(config).run()
    built, model, table = result.built, result.model, result.instance.table
    for probe in built.probes:
        print(f"    {probe.shape}: {probe.certified_accuracy:.4f}", flush=True)
    recall = result.instance.recall(model, math.ceil(prompts / table.facts))
    shape = model.shape
    return {
        "shape": [shape.dim, shape.heads, shape.head_dim, shape.width],
        "parameters": shape.parameters,
        "total_parameters": model.total_parameters,
        "certified_accuracy": built.certificate.certified_accuracy,
        "min_certified_margin": built.certificate.min_certified_margin,
        "accuracy": recall.accuracy,
        "prompts": recall.prompts_checked * table.facts,
        "min_relative_margin": recall.min_relative_margin,
        "bits": table.association_bits,
        "probes": max(1, len(built.probes)),
        "seconds": result.seconds,
    }


EXPERIMENT = Experiment("compiler", 2, measure_compiler)


def format_row(size: int, seed: int, metrics: Metrics) -> str:
    """Return a row of the table."""
    facts, parameters = size**2, metrics["parameters"]
    return (
        f"| {facts:,} | {seed} | ({', '.join(map(str, metrics['shape']))}) | {parameters:,} "
        f"| {facts / parameters:.3f} | {metrics['bits'] / parameters:.2f} "
        f"| {metrics['total_parameters']:,} | {metrics['prompts']:,} | {metrics['accuracy']} "
        f"| {metrics['certified_accuracy']:.4f} "
        f"| {metrics['min_certified_margin']:.1e} | {metrics['min_relative_margin']:.1e} "
        f"| {metrics['probes']} | {metrics['seconds']:.0f} |"
    )


HEADER = [
    "# Facts per parameter of compiled transformers",
    "",
    "Written by `benchmarks/compiler.py`: S = R, D = 8, every fact certified for every prompt, in",
    "float32 with weights of 16 bits. Parameters are counted as in the paper, 4·H·d·d_h + 2·m·d.",
    "The time is that of the complete search, or of one compilation if only one shape was tried.",
    "",
    "| facts | seed | (d, H, d_h, m) | parameters | facts per parameter | bits per parameter "
    "| stored numbers | test prompts | accuracy | certified accuracy | min certified margin "
    "| relative margin | shapes tried | time (s) |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
]


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--only", type=int, metavar="SUBJECTS", help="only this S = R")
    parser.add_argument("--seed", type=int, help="only this seed")
    options = parser.parse_args()
    lines = list(HEADER)
    with open_results(options, ThisProcess) as results:
        for size, shape, seeds in SMALLEST if options.smallest else CASES:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                if options.only not in (None, size) or options.seed not in (None, seed):
                    continue
                task = compiler_task(size, shape, seed)
                metrics = results.get(SequentialTasks(lambda get, task=task: get(task)))
                if metrics is None:
                    print(f"not in the store: S = R = {size}, seed {seed}")
                    continue
                lines.append(format_row(size, seed, metrics))
                print(lines[-1], flush=True)
    if options.only is None and options.seed is None and not options.smallest:
        PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
