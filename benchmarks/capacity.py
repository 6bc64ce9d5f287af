"""How many facts shapes store, with seeds, spread, margins, time and cost.

Every search runs on one worker per core. Runs are kept in the run store: an interrupted benchmark
resumes. Writes `benchmarks/capacity.md`.

    python benchmarks/capacity.py [--only NAME …] [--workers COUNT] [--stored-only]
"""

import statistics
from functools import partial
from pathlib import Path

from factmem.experiments import (
    Bracket,
    Capacity,
    CapacitySearches,
    LinearCapacityProblem,
    LocalWorkers,
    MLPCapacityProblem,
    ProbeVerdict,
    TransformerCapacityProblem,
    trace_search,
)
from factmem.facts.vocabulary import Vocabulary
from factmem.training.protocol import PAPER
from factmem.transformer.shape import Shape
from results import Results, open_results, option_parser

PAGE = Path(__file__).with_suffix(".md")
SHAPE = Shape(32, 8, 4, 32)
SMALL = Shape(16, 8, 2, 16)
FIVE, THREE = range(5), range(3)

SEARCHES = {
    "paper": (TransformerCapacityProblem(SHAPE), FIVE),
    "compiled": (TransformerCapacityProblem(SHAPE, protocol="compiled", criterion=1.0), FIVE),
    "best": (TransformerCapacityProblem(SHAPE, protocol="best"), THREE),
    "paper, S = R²": (TransformerCapacityProblem(SMALL, scaling="s=r2"), THREE),
    "paper, D = S = R": (TransformerCapacityProblem(SMALL, None, scaling="d=s=r"), THREE),
    "paper, attention alone": (TransformerCapacityProblem(Shape(16, 8, 4, 0)), THREE),
    "optimal, d = 16": (LinearCapacityProblem(16), FIVE),
    "optimal, d = 32": (LinearCapacityProblem(32), FIVE),
    "optimal, d = 64": (LinearCapacityProblem(64), FIVE),
    "trained matrix, d = 32": (LinearCapacityProblem(32, "trained", 0.99), THREE),
    "fitted MLP, d = m = 16": (MLPCapacityProblem(16, 16), THREE),
    "fitted MLP, d = m = 16, M = 32": (MLPCapacityProblem(16, 16, outputs=32), THREE),
    "trained MLP, d = m = 16": (MLPCapacityProblem(16, 16, "trained", None, 0.99), THREE),
    "trained MLP, d = m = 16, M = 32": (MLPCapacityProblem(16, 16, "trained", 32, 0.99), THREE),
}

SMALLEST = {
    "optimal, d = 8": (LinearCapacityProblem(8), range(2)),
    "fitted MLP, d = m = 4": (MLPCapacityProblem(4, 4), range(2)),
}


def search(name: str, problem, seeds, results: Results) -> Capacity | None:
    """Search one shape, or return None if the search is not in the store."""
    capacities = results.get(CapacitySearches([problem], seeds))
    if capacities is None:
        print(f"not in the store: {name}")
        return None
    (capacity,) = capacities
    new = sum(not run.from_store for seed in capacity.seeds for run in seed.probes.values())
    print(f"{name}: {capacity.facts} facts, {new} new runs", flush=True)
    return capacity


def format_row(name: str, capacity: Capacity) -> str:
    """Return a row of the table."""
    problem = capacity.problem
    sizes = [seed.bracket.lower or 0 for seed in capacity.seeds]
    facts = [problem.facts(size) if size else 0 for size in sizes]
    largest = [seed.largest.metrics for seed in capacity.seeds if seed.largest is not None]
    margins = [metrics["min_relative_margin"] for metrics in largest]
    runs = [record for seed in capacity.seeds for record in seed.probes.values()]
    widest = max(s.bracket.upper / s.bracket.lower for s in capacity.seeds if s.bracket.lower)
    return (
        f"| {name} | {problem.parameters:,} | {problem.criterion:g} | "
        f"{', '.join(map(str, sizes))} | {widest:.3f} | **{capacity.facts:,}** "
        f"({min(facts):,} to {max(facts):,}) | {capacity.facts / problem.parameters:.3f} | "
        f"{statistics.median(margins):.1e} | {len(runs)} | "
        f"{sum(record.seconds for record in runs) / len(capacity.seeds):.0f} |"
    )


def search_costs(capacity: Capacity):
    """Return the cost of our search for seed 0 and of the authors' search, in FLOP."""
    from factmem.training import step_flops

    seed = capacity.seeds[0]
    runs = seed.probes.values()
    steps_per_size = len(PAPER.learning_rates) * PAPER.steps
    limit = seed.bracket.lower
    authors_search = trace_search(
        capacity.problem.paper_search,
        lambda size: ProbeVerdict.STORED if size <= limit else ProbeVerdict.NOT_STORED,
    )
    assert authors_search.bracket == Bracket(limit, limit + 1)

    def engine_flops(size):
        vocabulary = Vocabulary(size, size, 2 * size, 8 * size)
        return step_flops(SHAPE, vocabulary, PAPER.batch_size)

    # Sizes that are stored have a cost too. It is left out, so this is a lower bound.
    failing = [size for size in authors_search.sizes if size > limit]
    return {
        "sizes": list(seed.probes),
        "total_steps": sum(record.metrics["total_steps"] for record in runs),
        "flops": sum(record.metrics["flops"] for record in runs),
        "authors_sizes": authors_search.sizes,
        "authors_run_steps": steps_per_size * len(failing),
        "authors_engine_flops": sum(steps_per_size * engine_flops(size) for size in failing),
        "authors_dense_flops": sum(steps_per_size * dense_flops(size) for size in failing),
    }


def dense_flops(size):
    """Count the FLOP of one step of `dense.py`, which computes as the authors' code does."""
    import jax
    import jax.random as jr

    import dense
    from flops import dot_flops

    shape = dense.Size(SHAPE.dim, SHAPE.heads, SHAPE.head_dim, SHAPE.width, size, size, 8)
    weights = dense.initial_weights(jr.key(0), shape)
    tables = dense.initial_tables(jr.key(1), shape)
    tokens, answers = dense.sample(jr.key(2), dense.random_table(jr.key(3), shape), shape)
    program = jax.make_jaxpr(jax.grad(dense.loss))(weights, tables, tokens, answers)
    return dot_flops(program.jaxpr)


def format_page(capacities: dict[str, Capacity]) -> str:
    """Return the page."""
    lines = [
        "# Facts stored, by search",
        "",
        "Written by `benchmarks/capacity.py`; embeddings are given and random, D = 8 unless D = S.",
        "*Largest* is S of a transformer or N of a memory for the seeds 0, 1, …; the next larger",
        "size, larger by at most the given ratio, was tried and is not stored. Transformers have",
        "the shape (32, 8, 4, 32), for other scalings (16, 8, 2, 16), with attention alone",
        "(16, 8, 4, 0). The margin is the smallest relative margin at the largest size, the median",
        "over seeds; where 99% count as stored, it belongs to a wrong answer. The time is that of",
        "all runs of a seed on one core of a machine that was partly busy.",
        "",
        "| | parameters | criterion | largest, by seed | ratio | facts, median (range) |"
        " facts per parameter | margin | runs | time per seed (s) |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(format_row(name, capacity) for name, capacity in capacities.items()),
    ]
    if "paper" in capacities:
        costs = search_costs(capacities["paper"])
        ours, dense = costs["flops"], costs["authors_dense_flops"]
        lines += [
            "",
            "## Cost compared with the authors' search",
            "",
            "Seed 0 of `paper`, matrix products only, on the path of the search; sizes that idle",
            "cores try in advance are not counted.",
            "",
            "| search | sizes S | run-steps | FLOP |",
            "|---|---|---|---|",
            f"| ours | {', '.join(map(str, costs['sizes']))} | {costs['total_steps']:,} | "
            f"{ours:.2e} |",
            f"| the authors', dense as in their code | "
            f"{', '.join(map(str, costs['authors_sizes']))} | "
            f"{costs['authors_run_steps']:,} | {dense:.2e} |",
            f"| the authors', on our engine | the same | the same | "
            f"{costs['authors_engine_flops']:.2e} |",
            "",
            "For the authors' search only sizes that are not stored are counted, each with three",
            "learning rates and 2^14 steps. It is a lower bound: "
            f"**{dense / ours:.0f}** times ours as their code computes, "
            f"{costs['authors_engine_flops'] / ours:.0f} times on our engine, "
            f"{costs['authors_run_steps'] / costs['total_steps']:.1f} times the run-steps.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(SEARCHES))
    parser.add_argument("--workers", type=int, help="number of processes; default: all cores")
    options = parser.parse_args()
    searches = SMALLEST if options.smallest else SEARCHES
    names = options.only or list(searches)
    with open_results(options, partial(LocalWorkers, options.workers)) as results:
        capacities = {name: search(name, *searches[name], results) for name in names}
        # The page has all searches that the store has.
        stored = Results(results.store)
        for name in searches:
            if name not in capacities:
                capacities[name] = search(name, *searches[name], stored)
    capacities = {name: capacities[name] for name in searches}
    page = format_page({name: c for name, c in capacities.items() if c is not None})
    if not options.smallest:
        PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
