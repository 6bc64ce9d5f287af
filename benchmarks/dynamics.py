"""Maps of the hallucination stage, beyond the paper: docs/dynamics.md shows and explains them.

Every experiment is one task of the run store (`results/dynamics.sqlite`), so that a script started
again does what is missing. From the store it writes CSV files and figures into `docs/dynamics/`.

    python benchmarks/dynamics.py [--workers COUNT] [--only-kept]
"""

import argparse
from pathlib import Path

from factmem.dynamics.maps import FLOW, SOFTMAX
from factmem.runs import LocalWorkers, Store, Task, Wanted, sweep
from kept import RESULTS

PAGES = Path(__file__).parent.parent / "docs" / "dynamics"

D, LENGTH, SCALE = 8, 32, 1e-5
SUBJECTS, RELATIONS = (8, 16, 32, 64, 128, 256), (2, 4, 8, 16, 32, 64)
SEEDS = range(3)
POWERS = (0.0, 0.5, 1.0, 1.5)
DIMS, HEAD_SEEDS = (41, 73, 146, 292), range(5)


def flow(subjects, relations, table="structured", power=0.0, seed=0):
    return Task(
        FLOW,
        {
            "subjects": subjects,
            "relations": relations,
            "answers": D,
            "table": table,
            "noise": subjects + relations,
            "length": LENGTH,
            "subject_power": power,
            "scale": SCALE,
            "seed": seed,
        },
    )


def head(dim, seed):
    sizes = {"subjects": 16, "relations": 4, "answers": D, "dim": dim}
    return Task(SOFTMAX, {**sizes, "rate": 16.0, "steps": 4096, "scale": SCALE, "seed": seed})


def sizes(most_facts):
    """Every S and R with so many facts at most: S/R from 1/8 to 128."""
    return [(s, r) for s in SUBJECTS for r in RELATIONS if s * r <= most_facts]


STRUCTURED = [flow(s, r) for s, r in sizes(1024)]
RANDOM = [flow(s, r, "random", seed=seed) for s, r in sizes(512) for seed in SEEDS]
ZIPF = [flow(64, 4, table, power) for table in ("structured", "random") for power in POWERS]
HEADS = [head(dim, seed) for dim in DIMS for seed in HEAD_SEEDS]
# The shortest first, so that something can be looked at early.
TASKS = sorted([*STRUCTURED, *ZIPF, *RANDOM], key=lambda t: t.config["relations"]) + HEADS


def measured(store, workers):
    def wanted(known):
        missing = [task for task in TASKS if task.identity not in known]
        return Wanted(needed=missing)

    def report(state):
        done = len(state.known)
        if done != report.told:
            print(f"{done} of {len(TASKS)}", flush=True)
            report.told = done

    report.told = 0
    return sweep(wanted, store, workers, report=report)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    with Store(RESULTS / "dynamics.sqlite") as store, LocalWorkers(options.workers) as workers:
        measured(store, workers)


if __name__ == "__main__":
    main()
