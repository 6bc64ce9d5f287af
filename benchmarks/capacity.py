"""How many facts shapes store, with seeds, spread, margins, time and cost.

Every search is `find_capacity` with one worker a core. Results are kept in `results/`, so that a
script started again does what is missing; `benchmarks/capacity.md` is written from them.

    python benchmarks/capacity.py [--only NAME …] [--only-kept]
"""

import argparse
import statistics
import time
from pathlib import Path

from factmem.experiments import (
    Bracket,
    LinearCapacityProblem,
    LocalWorkers,
    MLPCapacityProblem,
    Store,
    TransformerCapacityProblem,
    Workers,
    find_capacity,
    walk,
)
from factmem.experiments.search import Verdict
from kept import RESULTS

SHAPE = (32, 8, 4, 32)
FIVE, THREE = range(5), range(3)

SEARCHES = {
    "paper": (TransformerCapacityProblem(*SHAPE), FIVE),
    "compiled": (TransformerCapacityProblem(*SHAPE, protocol="compiled", criterion=1.0), FIVE),
    "best": (TransformerCapacityProblem(*SHAPE, protocol="best"), THREE),
    "paper, S = R²": (TransformerCapacityProblem(16, 8, 2, 16, scaling="s=r2"), THREE),
    "paper, D = S = R": (TransformerCapacityProblem(16, 8, 2, 16, None, scaling="d=s=r"), THREE),
    "paper, attention alone": (TransformerCapacityProblem(16, 8, 4, 0), THREE),
    "maximal, d = 16": (LinearCapacityProblem(16), FIVE),
    "maximal, d = 32": (LinearCapacityProblem(32), FIVE),
    "maximal, d = 64": (LinearCapacityProblem(64), FIVE),
    "trained matrix, d = 32": (LinearCapacityProblem(32, "trained", 0.99), THREE),
    "fitted MLP, d = m = 16": (MLPCapacityProblem(16, 16), THREE),
    "fitted MLP, d = m = 16, M = 32": (MLPCapacityProblem(16, 16, outputs=32), THREE),
    "trained MLP, d = m = 16": (MLPCapacityProblem(16, 16, "trained", None, 0.99), THREE),
    "trained MLP, d = m = 16, M = 32": (MLPCapacityProblem(16, 16, "trained", 32, 0.99), THREE),
}


class Nobody(Workers):
    """For reading only: a search that lacks something stops there."""

    def free(self):
        raise LookupError

    def submit(self, task):
        raise LookupError

    def stop(self, future):
        return False

    def close(self):
        pass


def searched(name, store, workers):
    question, seeds = SEARCHES[name]
    start = time.monotonic()
    found = find_capacity(question, seeds, store, workers)
    run = sum(not r.kept for seed in found.seeds for r in seed.probes.values())
    if run:
        print(f"{name}: {found.facts} facts, {run} probes run, {time.monotonic() - start:.0f} s")
    return found


def row(name, found):
    question = found.problem
    lowers = [seed.bracket.lower or 0 for seed in found.seeds]
    facts = [question.facts(lower) if lower else 0 for lower in lowers]
    largest = [seed.largest.metrics for seed in found.seeds if seed.largest is not None]
    margins = [m["relative_margin"] for m in largest]
    probes = [record for seed in found.seeds for record in seed.probes.values()]
    widest = max(s.bracket.upper / s.bracket.lower for s in found.seeds if s.bracket.lower)
    return (
        f"| {name} | {question.parameters:,} | {question.criterion:g} | "
        f"{', '.join(map(str, lowers))} | {widest:.3f} | **{found.facts:,}** "
        f"({min(facts):,} to {max(facts):,}) | {found.facts / question.parameters:.3f} | "
        f"{statistics.median(margins):.1e} | {len(probes)} | "
        f"{sum(record.seconds for record in probes) / len(found.seeds):.0f} |"
    )


def costs(found):
    """What the search of one seed cost, and what the authors' would, in FLOP."""
    from factmem import PAPER, Shape, Vocabulary
    from factmem.training import step_flops

    seed = found.seeds[0]
    ours = sum(record.metrics["flops"] for record in seed.probes.values())
    every = len(PAPER.learning_rates) * PAPER.steps
    limit = seed.bracket.lower
    theirs = trace_search(
        found.problem.paper_search,
        lambda size: Verdict.STORED if size <= limit else Verdict.NOT_STORED,
    )
    assert theirs.bracket == Bracket(limit, limit + 1)

    def in_engine(size):
        words = Vocabulary(size, size, 2 * size, 8 * size)
        return step_flops(Shape(*SHAPE), words, PAPER.batch)

    # Sizes that they store cost them something too; it is left out, so that this is a lower bound.
    failing = [size for size in theirs.sizes if size > limit]
    return {
        "ours": ours,
        "run_steps": sum(record.metrics["run_steps"] for record in seed.probes.values()),
        "sizes": list(seed.probes),
        "their_sizes": theirs.sizes,
        "their_run_steps": every * len(failing),
        "engine": sum(every * in_engine(size) for size in failing),
        "dense": sum(every * dense_flops(size) for size in failing),
    }


def dense_flops(size):
    """Of one step of `dense.py`, which computes as the authors' code does."""
    import jax
    import jax.random as jr

    import dense
    from flops import dot_flops

    shape = dense.Size(*SHAPE, size, size, 8)
    weights = dense.initial_weights(jr.key(0), shape)
    tables = dense.initial_tables(jr.key(1), shape)
    tokens, answers = dense.sample(jr.key(2), dense.random_table(jr.key(3), shape), shape)
    program = jax.make_jaxpr(jax.grad(dense.loss))(weights, tables, tokens, answers)
    return dot_flops(program.jaxpr)


def written(found):
    lines = [
        "# Facts stored, by search",
        "",
        "By `benchmarks/capacity.py`; embeddings are random and given, D = 8 unless it is S.",
        "*Largest* is S of a transformer, N of a memory, seed by seed from 0; the next larger size",
        "within the ratio (the widest of all seeds) was tried and is not stored. Transformers",
        "have the shape (32, 8, 4, 32), with other scalings (16, 8, 2, 16), attention alone",
        "(16, 8, 4, 0). The margin is the smallest relative one of the largest size, median over",
        "seeds; where 99 % count as stored it is that of a wrong answer. Seconds are of one core,",
        "all probes of a seed together, on a machine that had other work at times.",
        "",
        "| | parameters | criterion | largest, by seed | ratio | facts, median (range) |"
        " a parameter | margin | probes | seconds a seed |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(row(name, each) for name, each in found.items()),
    ]
    if "paper" in found:
        cost = costs(found["paper"])
        lines += [
            "",
            "## Against the authors' search",
            "",
            "Seed 0 of `paper`, matrix products alone, on the path of the search; what idle cores",
            "try ahead is not counted.",
            "",
            "| | sizes S | run-steps | FLOP |",
            "|---|---|---|---|",
            f"| ours | {', '.join(map(str, cost['sizes']))} | {cost['run_steps']:,} | "
            f"{cost['ours']:.2e} |",
            f"| theirs, dense as their code is | {', '.join(map(str, cost['their_sizes']))} | "
            f"{cost['their_run_steps']:,} | {cost['dense']:.2e} |",
            f"| theirs, on our engine | the same | the same | {cost['engine']:.2e} |",
            "",
            "Theirs counts only sizes that are not stored, each with three rates and 2^14 steps,",
            f"and is a lower bound: **{cost['dense'] / cost['ours']:.0f}** times ours as their "
            f"code computes, {cost['engine'] / cost['ours']:.0f} times on our engine, "
            f"{cost['their_run_steps'] / cost['run_steps']:.1f} times the run-steps.",
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(SEARCHES), choices=list(SEARCHES))
    parser.add_argument("--only-kept", action="store_true")
    options = parser.parse_args()
    found = {}
    with Store(RESULTS / "capacity.sqlite") as store:
        if not options.only_kept:
            with LocalWorkers() as workers:
                for name in options.only:
                    searched(name, store, workers)
        for name in SEARCHES:
            try:
                found[name] = searched(name, store, Nobody())
            except LookupError:
                print(f"missing: {name}")
    page = written(found)
    Path(__file__).with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
