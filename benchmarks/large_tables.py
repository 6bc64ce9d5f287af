"""How the compiler grows with the table: time, memory and parameters, certified for every prompt.

Two series: random tables with S = R and D = 8 and S + R noise tokens, and real tables with 64 noise
tokens. T = 32, weights of 16 bits, embeddings on the sphere. Shapes come from `suggest_shape` at a
given number of bits per parameter. Every run has its own process, so that peak memory is that of
one run, and is followed by a recall test on at least 10^5 prompts. The speed of one step of the fit
is divided by that of a product of two 2,048 × 2,048 matrices, measured in the same process.

`--adam` trains the same shape, with the same embeddings, on prompts, by Adam with a cosine schedule
and a full softmax over all answers: the time until 99%, 99.9% and 100% of 2,048 fixed test prompts
are right, at several rates and lengths. Runs are kept in the run store.

Real tables are CSV files in the folder `--tables`; `airports.csv` is written from the package
airportsdata, if it is installed.

    python benchmarks/large_tables.py --tables FOLDER [--only NAME] [--adam]
"""

import csv
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from factmem.experiments import (
    Compile,
    Experiment,
    PromptSpec,
    TableSpec,
    Task,
    TransformerSpec,
)
from results import Metrics, SequentialTasks, ThisProcess, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
SIZES, LOAD = (30, 60, 120, 240), 0.6
"""S = R of the random tables, and their bits per parameter."""
REAL = {"relations-factual": 1.3, "lama-trex": 1.1, "airports": 0.7}
"""Bits per parameter of the real tables."""
PROMPTS = 10**5
SEED = 202
"""Settings of the compiler were chosen with seeds 0 to 201."""
AIRPORT_COLUMNS = ("name", "city", "subd", "country", "tz", "icao", "elevation")
ADAM_RUNS = {
    "relations-factual": [(rate, 2**12) for rate in (1e-3, 3e-3, 1e-2, 3e-2)] + [(1e-2, 2**13)],
    "airports": [(3e-3, 2**11)],
}
"""Learning rates and steps."""
ADAM_LOAD = 0.5
"""Bits per parameter for the comparison with Adam, which needs more parameters."""
ADAM_TEST_PROMPTS = 2048
MATRIX = 2048


def airports_csv(folder: Path) -> None:
    """Write the airports with an IATA code as a table, one fact a column that is not empty."""
    import airportsdata

    with (folder / "airports.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["subject", "relation", "answer"])
        for code, airport in sorted(airportsdata.load("IATA").items()):
            for column in AIRPORT_COLUMNS:
                if str(airport[column]).strip():
                    writer.writerow([code, column, airport[column]])


def spec_of(config: dict[str, Any]) -> TransformerSpec:
    """Return the spec of a case: its table, and the shape that suits it."""
    from factmem.transformer.compiler.shapes import suggest_shape

    name, size = config["name"], config["size"]
    if size is not None:
        table, prompts = TableSpec.random(size, size, 8), PromptSpec()
    else:
        table, prompts = (
            TableSpec.csv(str(Path(config["folder"]) / f"{name}.csv")),
            PromptSpec(noise=64),
        )
    method = Compile(embedding="sphere")
    drawn = prompts.draw(table.draw(config["seed"]))
    shape = suggest_shape(drawn, config["load"])
    return TransformerSpec(
        table=table, shape=shape, method=method, prompts=prompts, seed=config["seed"]
    )


def measure_compilation(**config: Any) -> dict[str, Any]:
    """Compile one table and test the transformer."""
    start = time.perf_counter()
    spec = spec_of(config)
    result = spec.run()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    table, shape, certificate = result.instance.table, spec.shape, result.built.certificate
    recall = result.instance.recall(result.model, math.ceil(PROMPTS / table.facts))
    return {
        "facts": table.facts,
        "answers": table.answers,
        "bits": table.association_bits,
        "shape": [shape.dim, shape.heads, shape.head_dim, shape.width],
        "parameters": shape.parameters,
        "certified_accuracy": certificate.certified_accuracy,
        "min_certified_margin": certificate.min_certified_margin,
        "broken": round((1 - recall.accuracy) * table.facts),
        "prompts": recall.prompts_checked * table.facts,
        "steps": result.built.iterations,
        "seconds": seconds,
        "peak_memory_bytes": peak,
        **measure_speed(spec, result.instance),
    }


def measure_speed(spec: TransformerSpec, instance: Any) -> dict[str, float]:
    """Measure the operations in a second, of steps of the fit and of a large matrix product."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from factmem.transformer.compiler.confusion import ConfusedPairs
    from factmem.transformer.compiler.fit import Schedule
    from factmem.transformer.compiler.known_inputs import FitData, initial_weights
    from factmem.transformer.compiler.steps import (
        RoundNumbers,
        State,
        device_array,
        sampled_answers,
        take_steps,
    )

    def seconds_of(function: Any, *arguments: Any) -> float:
        jax.block_until_ready(function(*arguments))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            times.append(time.perf_counter() - start)
        return min(times)

    shape, prompts, vocabulary = spec.shape, instance.prompts, instance.vocabulary
    embeddings = spec.method.draw_embeddings(shape.dim, vocabulary, instance.start_key)
    tokens = np.asarray(embeddings.tokens)
    noise = tokens[vocabulary.first_noise : vocabulary.eos] - tokens[-1]
    known, target = prompts.known_tokens(), np.asarray(prompts.fact_answers)
    outputs, gap = np.asarray(embeddings.outputs), np.asarray(15.0, np.float32)
    data = FitData(tokens, known, outputs, target, noise, gap)
    rng = np.random.default_rng(0)
    key = rng.normal(size=(shape.heads, shape.dim))
    weights = initial_weights(data, key, shape, bias=True, rng=rng)
    state = State.start(jax.tree.map(device_array, weights))
    batch = Schedule.default(table_facts := len(known), 1.0).batch_size
    steps, sampled = 20, sampled_answers(len(outputs))
    facts = jnp.asarray(rng.integers(table_facts, size=(steps, batch)), jnp.int32)
    hard = jnp.asarray(rng.integers(len(outputs), size=(table_facts, 16)), jnp.int32)
    numbers = jax.tree.map(jnp.float32, RoundNumbers(100.0, 1e-2, 3e-3, 0.1))
    data = jax.tree.map(device_array, data)
    arguments = data, ConfusedPairs.none(), facts, hard, jnp.zeros(table_facts), numbers
    seconds = seconds_of(take_steps, state, *arguments, jr.key(0), sampled)
    flops = 6 * steps * batch * (shape.parameters + shape.dim * sampled)
    matrix = jnp.asarray(rng.normal(size=(MATRIX, MATRIX)), jnp.float32)
    product_seconds = seconds_of(jax.jit(jnp.matmul), matrix, matrix)
    return {
        "step_flops_per_second": flops / seconds,
        "product_flops_per_second": 2 * MATRIX**3 / product_seconds,
    }


def measure_adam(*, learning_rate: float, steps: int, **config: Any) -> dict[str, Any]:
    """Train the same shape on prompts by Adam with a cosine schedule, and time its accuracies."""
    from dataclasses import replace

    import equinox as eqx

    from factmem.training import PAPER, TrainingRun, train_transformers
    from factmem.transformer import Transformer

    spec = spec_of(config)
    instance = spec.draw()
    start = Transformer.draw(spec.shape, instance.vocabulary, key=instance.start_key)
    embeddings = spec.method.draw_embeddings(
        spec.shape.dim, instance.vocabulary, instance.start_key
    )
    start = eqx.tree_at(lambda model: model.embeddings, start, embeddings)
    protocol = replace(
        PAPER,
        learning_rates=(learning_rate,),
        schedule="cosine",
        steps=steps,
        stratified=True,
        test_prompts=ADAM_TEST_PROMPTS,
        criterion=0.99999,
    )
    begin = time.perf_counter()
    run = TrainingRun(start, instance.prompts, learning_rate)
    (result,) = train_transformers([run], protocol, key=instance.method_key)
    seconds = time.perf_counter() - begin
    evaluations = result.evaluations
    seconds_per_step = seconds / max(1, evaluations[-1].steps)
    times = {
        name: next((e.steps * seconds_per_step for e in evaluations if e.accuracy >= level), None)
        for name, level in (("99%", 0.99), ("99.9%", 0.999), ("100%", 1.0))
    }
    return {"seconds_to": times, "best_accuracy": result.best_accuracy, "seconds": seconds}


EXPERIMENT = Experiment("compiler growth", 2, measure_compilation)
ADAM = Experiment("compiler growth, Adam", 2, measure_adam)


def cases(options: Any) -> list[dict[str, Any]]:
    """Return the cases that can run here."""
    chosen: list[dict[str, Any]] = [
        {"name": f"S = R = {size}", "size": size, "folder": None, "load": LOAD, "seed": SEED}
        for size in SIZES
    ]
    folder = options.tables
    for name, load in REAL.items():
        if folder is not None and (folder / f"{name}.csv").exists():
            case = {"name": name, "size": None, "folder": str(folder.resolve())}
            chosen.append({**case, "load": load, "seed": SEED})
    if options.smallest:
        return [{"name": "S = R = 12", "size": 12, "folder": None, "load": 0.3, "seed": SEED}]
    return [case for case in chosen if options.only in (None, case["name"])]


def format_row(case: dict[str, Any], metrics: Metrics) -> str:
    """Return a row of the table."""
    parameters = metrics["parameters"]
    return (
        f"| {case['name']} | {metrics['facts']:,} | {metrics['answers']:,} "
        f"| ({', '.join(map(str, metrics['shape']))}) | {parameters:,} "
        f"| {metrics['facts'] / parameters:.3f} | {metrics['bits'] / parameters:.2f} "
        f"| {metrics['certified_accuracy']:.5f} | {metrics['min_certified_margin']:.1e} "
        f"| {metrics['broken']} of {metrics['prompts']:,} | {metrics['steps']:,} "
        f"| {metrics['seconds']:.0f} | {metrics['peak_memory_bytes'] / 1e9:.2f} "
        f"| {metrics['step_flops_per_second'] / metrics['product_flops_per_second']:.2f} |"
    )


def exponents(rows: list[Metrics]) -> str:
    """Return the exponents of time and memory in the number of facts, by least squares."""
    facts = np.log([row["facts"] for row in rows])
    fits = [
        np.polyfit(facts, np.log([row[name] for row in rows]), 1)[0]
        for name in ("seconds", "peak_memory_bytes")
    ]
    return (
        f"Random tables of more than 2,000 facts: time grows as N^{fits[0]:.2f}, memory as "
        f"N^{fits[1]:.2f}."
    )


HEADER = [
    "# The compiler on large tables",
    "",
    "Written by `benchmarks/large_tables.py`: certified for every prompt of 32 tokens, in float32",
    "with weights of 16 bits. The time is that of the whole compilation, programs included. Broken",
    "facts are counted in sampled and in worst-noise prompts.",
    "",
    "| table | facts | answers | (d, H, d_h, m) | parameters | facts per parameter "
    "| bits per parameter | certified accuracy | min certified margin | broken facts, of prompts "
    "| steps | time (s) | peak memory (GB) | speed of a step / of a product |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
]
ADAM_HEADER = [
    "",
    f"Training by Adam in the same shape, with {ADAM_LOAD} bits per parameter: seconds until this",
    f"part of {ADAM_TEST_PROMPTS:,} test prompts is right, a dash if it never was. The compiler's",
    "time is until every fact is certified.",
    "",
    "| table | (d, H, d_h, m) | compiler (s) | rate of Adam | steps | 99% (s) | 99.9% (s) "
    "| 100% (s) | end (s) | best accuracy | time of Adam to 100% / of the compiler |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
]


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="where the CSV files are")
    parser.add_argument("--only", metavar="NAME", help="only this table; nothing is written")
    parser.add_argument("--adam", action="store_true", help="also train by Adam")
    options = parser.parse_args()
    if options.tables is not None and not (options.tables / "airports.csv").exists():
        try:
            airports_csv(options.tables)
        except ImportError:
            print("airports: install airportsdata")
    chosen = cases(options)
    if options.only is None and not options.smallest and not options.stored_only:
        for case in chosen:  # each in a process of its own
            command = [sys.executable, __file__, "--only", case["name"], "--store", options.store]
            command += ["--tables", options.tables] if options.tables else []
            command += ["--adam"] if options.adam else []
            subprocess.run([str(part) for part in command], check=True)
    lines, adam_lines, random_rows = list(HEADER), list(ADAM_HEADER), []
    with open_results(options, ThisProcess) as results:

        def get(experiment: Experiment, case: dict[str, Any]) -> Metrics | None:
            task = Task(experiment, case)
            return results.get(SequentialTasks(lambda get_one: get_one(task)))

        for case in chosen:
            metrics = get(EXPERIMENT, case)
            if metrics is None:
                print(f"not in the store: {case['name']}")
                continue
            lines.append(format_row(case, metrics))
            print(lines[-1], flush=True)
            if case["size"] is not None and metrics["facts"] > 2000:
                random_rows.append(metrics)
            easy = {**case, "load": ADAM_LOAD}
            runs = ADAM_RUNS.get(case["name"], []) if options.adam else []
            compiled = get(EXPERIMENT, easy) if runs else None
            for rate, steps in runs:
                trained = get(ADAM, {**easy, "learning_rate": rate, "steps": steps})
                if compiled is not None and trained is not None:
                    adam_lines.append(format_adam(case, rate, steps, compiled, trained))
                    print(adam_lines[-1], flush=True)
    if options.only is None and not options.smallest:
        lines += ["", exponents(random_rows)] if len(random_rows) > 1 else []
        lines += adam_lines if len(adam_lines) > len(ADAM_HEADER) else []
        PAGE.write_text("\n".join(lines) + "\n")


def format_adam(
    case: dict[str, Any], rate: float, steps: int, compiled: Metrics, trained: Metrics
) -> str:
    """Return a row of the comparison with Adam."""
    times = trained["seconds_to"]
    cells = ["–" if times[level] is None else f"{times[level]:.0f}" for level in times]
    to_100, seconds = times["100%"], compiled["seconds"]
    ratio = (trained["seconds"] if to_100 is None else to_100) / seconds
    shape = ", ".join(map(str, compiled["shape"]))
    open_facts = "" if compiled["certified_accuracy"] == 1 else " (not all certified)"
    return (
        f"| {case['name']} | ({shape}) | {seconds:.0f}{open_facts} | {rate:g} | {steps:,} "
        f"| {' | '.join(cells)} | {trained['seconds']:.0f} | {trained['best_accuracy']:.4f} "
        f"| {'above ' if to_100 is None else ''}{ratio:.1f} |"
    )


if __name__ == "__main__":
    main()
