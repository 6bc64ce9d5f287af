"""Tasks that cost nothing, and a capacity problem that consists of them.

Workers import this module as `tests.experiments.sample_tasks`. As a program it searches the
capacities of `DIMS` for `SEEDS`, in a process that tests can kill:

    python -m tests.experiments.sample_tasks STORE LOG SECONDS
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from factmem.experiments import (
    CapacityProblem,
    Experiment,
    LocalWorkers,
    PaperSearch,
    PendingTasks,
    Store,
    Task,
    find_capacities,
)

SEEDS = range(4)
DIMS = (10, 14, 20)


def read_log(log):
    """Return the measurements that were started: one entry each, with the process ID."""
    path = Path(log)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def true_capacity(dim, seed):
    return dim * dim // 5 + 7 * seed


def measure(*, dim, size, seed, log, seconds):
    with open(log, "a") as file:
        file.write(json.dumps({"dim": dim, "size": size, "seed": seed, "pid": os.getpid()}) + "\n")
    time.sleep(seconds)
    return {"stored": size <= true_capacity(dim, seed)}


def fail(*, seed, kind):
    if kind == "death":
        os._exit(9)
    raise {"error": ZeroDivisionError, "memory": MemoryError}[kind]("deep inside")


def die_once(*, flag):
    """Kill the process the first time."""
    path = Path(flag)
    if not path.exists():
        path.touch()
        os._exit(9)
    return {"done": True}


def sleep(*, seconds):
    time.sleep(seconds)
    return {}


LOGGED = Experiment("logged", 1, measure)
FAIL = Experiment("fail", 1, fail)
DIE_ONCE = Experiment("die-once", 1, die_once)
SLEEP = Experiment("sleep", 1, sleep)


@dataclass(frozen=True)
class SampleProblem(CapacityProblem):
    """Store up to `true_capacity` facts.

    Args:
        dim: d.
        log: the file to which every measurement is written when it starts.
        seconds: the duration of a measurement.
    """

    dim: int
    log: str
    seconds: float = 0.0

    @property
    def parameters(self):
        return self.dim**2

    @property
    def expected_facts_per_parameter(self):
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
        return Task(LOGGED, {**config, "log": self.log, "seconds": self.seconds})


def sample_problems(log, seconds=0.0):
    return [SampleProblem(dim, str(log), seconds) for dim in DIMS]


def brackets(capacities):
    """Return one row [dim, seed, lower, upper] for each search."""
    return [
        [capacity.problem.dim, seed.seed, seed.bracket.lower, seed.bracket.upper]
        for capacity in capacities
        for seed in capacity.seeds
    ]


def pending_among(tasks):
    """Return the function for `sweep` that needs these tasks."""
    return lambda known: PendingTasks([task for task in tasks if task.identity not in known])


def main():
    path, log, seconds = sys.argv[1:]
    problems = sample_problems(log, float(seconds))
    with Store(path) as store, LocalWorkers(2) as workers:
        capacities = find_capacities(problems, SEEDS, store, workers)
    print(json.dumps(brackets(capacities)))


if __name__ == "__main__":
    main()
