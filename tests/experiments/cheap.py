"""A measurement that costs nothing, and a search that consists of such, for tests that kill.

Workers import this as `tests.experiments.cheap`. As a program it is the driver of a sweep:

    python -m tests.experiments.cheap STORE LOG SECONDS [CLUSTER]
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from factmem.experiments import (
    CapacityProblem,
    ClusterWorkers,
    Experiment,
    LocalWorkers,
    PaperSearch,
    Store,
    Task,
    find_capacities,
)

SEEDS = range(4)
DIMS = (10, 14, 20)


def told(log):
    """What was begun so far: one entry a measurement, with the process that did it."""
    path = Path(log)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def limit(dim, seed):
    return dim * dim // 5 + 7 * seed


def measure(*, dim, size, seed, log, seconds):
    with open(log, "a") as file:
        file.write(json.dumps({"dim": dim, "size": size, "seed": seed, "pid": os.getpid()}) + "\n")
    time.sleep(seconds)
    return {"stored": size <= limit(dim, seed)}


def fail(*, seed, kind):
    if kind == "death":
        os._exit(9)
    raise {"error": ZeroDivisionError, "memory": MemoryError}[kind]("deep inside")


def die_once(*, flag):
    """Kills its process the first time."""
    path = Path(flag)
    if not path.exists():
        path.touch()
        os._exit(9)
    return {"done": True}


MEASURE = Experiment("cheap", 1, measure)
FAIL = Experiment("fail", 1, fail)
DIE_ONCE = Experiment("die-once", 1, die_once)


@dataclass(frozen=True)
class CheapQuestion(CapacityProblem):
    dim: int
    log: str
    seconds: float

    @property
    def parameters(self):
        return self.dim**2

    @property
    def density(self):
        return 0.3

    @property
    def ratio(self):
        return 1.01

    @property
    def paper_search(self):
        return PaperSearch(1, self.dim**2)

    def facts(self, size):
        return size

    def task(self, size, seed):
        config = {"dim": self.dim, "size": size, "seed": seed}
        return Task(MEASURE, {**config, "log": self.log, "seconds": self.seconds})


def table(found):
    return [
        [capacity.problem.dim, seed.seed, seed.bracket.lower, seed.bracket.upper]
        for capacity in found
        for seed in capacity.seeds
    ]


def main():
    store, log, seconds, *cluster = sys.argv[1:]
    questions = [CheapQuestion(dim, log, float(seconds)) for dim in DIMS]
    workers = ClusterWorkers(*cluster) if cluster else LocalWorkers(2)
    with Store(store) as kept, workers:
        found = find_capacities(questions, SEEDS, kept, workers)
    print(json.dumps(table(found)))


if __name__ == "__main__":
    main()
