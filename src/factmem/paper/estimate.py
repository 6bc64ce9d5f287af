"""How long a figure will take, from the speed that this machine is measured to have.

What is expected of a search is the cost of its usual number of tries at the size that the shape
probably stores. That is right up to a factor of two, which is what one needs to know before a day.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from factmem.experiments.capacity import CapacitySearches
from factmem.experiments.decodable import LimitedCapacitySearches
from factmem.experiments.measurement import Measurement, MeasurementGroup, IndependentTasks, unstored_tasks
from factmem.experiments.scheduler import sweep
from factmem.experiments.store import Record, Store
from factmem.experiments.task import Task
from factmem.experiments.workers import Workers
from factmem.paper.figure import Figures

__all__ = ["Speed", "expected_seconds", "measure_speed", "measured_speed"]

_TRIES = 3.5
"""That a search needs, on average (benchmarks/capacity.md)."""
_DONE = 0.45
"""The part of its steps that a training takes on average: one that succeeds, or is hopeless, ends
early."""
_ITERATIONS = {"maximal": 1000, "fitted-relu": 1500, "compiled": 3000}
"""Of L-BFGS."""
_OTHER = 10.0
"""Seconds of a measurement that is none of these."""
_SMALL, _LARGE = (8, 8, 1, 8, 7), (64, 8, 8, 64, 50)
"""d, H, d_h, m and S of the trainings that are timed."""


@dataclass(frozen=True)
class Speed:
    """Of one worker, while the others work too.

    Args:
        step: seconds that a training step takes besides its arithmetic.
        flops: additions and multiplications a second.
        compiling: seconds before a new shape begins.
    """

    step: float
    flops: float
    compiling: float


def measure_speed(*, steps: int, seed: int) -> dict[str, Any]:
    """Times a few steps of a small and of a large training by the paper's protocol."""
    import time
    from dataclasses import replace

    import jax.random as jr

    from factmem.facts import FactTable, PromptDistribution
    from factmem.training import PAPER, runs_for_learning_rates, step_flops, train_transformers
    from factmem.transformer import Shape, Transformer

    protocol = replace(PAPER, steps=steps, checks=1)
    found = {}
    for name, (*sizes, subjects) in (("small", _SMALL), ("large", _LARGE)):
        asked = PromptDistribution.of(FactTable.random(subjects, subjects, 8, seed=seed))
        shape = Shape(*sizes)
        start = Transformer.draw(jr.key(seed), shape, asked.vocabulary)
        taken = []
        for again in range(3):  # the first compiles
            begun = time.perf_counter()
            train_transformers(
                runs_for_learning_rates(start, asked, protocol), protocol, jr.key(again)
            )
            taken.append(time.perf_counter() - begun)
        found[name] = {
            "compiling": max(0.0, taken[0] - min(taken)),
            "step": min(taken) / (steps * len(protocol.learning_rates)),
            "flops": step_flops(shape, asked.vocabulary, protocol.batch),
        }
    return found


def measured_speed(store: Store, workers: Workers, steps: int = 48) -> Speed:
    """Has every worker timed at once, which takes about half a minute."""
    timed = unstored_tasks(measure_speed, range(max(1, workers.free())), steps=steps)
    known = sweep(timed.pending, store, workers)
    return _speed([result for result in timed.result(known) if result])


def _speed(results: list[Mapping[str, Any]]) -> Speed:
    """The line through both trainings, averaged over workers."""

    def mean(size: str, name: str) -> float:
        return sum(result[size][name] for result in results) / len(results)

    small, large = mean("small", "step"), mean("large", "step")
    more = mean("large", "flops") - mean("small", "flops")
    each = max((large - small) / more, 1e-15)
    step = max(small - each * mean("small", "flops"), 0.0)
    return Speed(step, 1 / each, mean("large", "compiling"))


def expected_seconds(measurement: Measurement, known: Mapping[str, Record], speed: Speed) -> float:
    """What is still to be done of a measurement, on one worker."""
    if isinstance(measurement, Figures):
        measured = [figure.measured for figure in measurement.figures]
        return sum((expected_seconds(each, known, speed) for each in measured), 0.0)
    if isinstance(measurement, MeasurementGroup):
        parts = measurement.parts.values()
        return sum((expected_seconds(part, known, speed) for part in parts), 0.0)
    if isinstance(measurement, LimitedCapacitySearches):
        return expected_seconds(measurement.searches, known, speed)
    if isinstance(measurement, CapacitySearches):
        return _of_searches(measurement, known, speed)
    if not isinstance(measurement, IndependentTasks):
        raise TypeError(f"nothing is known of how long a {type(measurement).__name__} takes")
    missing = [task for task in measurement.tasks if task.identity not in known]
    return sum((_of_task(task, speed) for task in missing), 0.0)


def _of_searches(searches: CapacitySearches, known: Mapping[str, Record], speed: Speed) -> float:
    whole = 0.0
    for seed in searches.seeds:
        begun = searches.of_seed(seed, known)
        over = len(begun) - (begun[-1].trace.next_size is not None)
        for problem in searches.problems[over:]:
            size = problem.size_of(problem.expected)
            whole += _TRIES * _of_task(problem.task(size, seed), speed)
    return whole


def _of_task(task: Task, speed: Speed) -> float:
    config, name = task.config, task.experiment.name
    if name == "transformer":
        return _of_transformer(config, speed)
    if name == "memory":
        return _of_memory(config, speed)
    return _OTHER


def _of_transformer(config: Mapping[str, Any], speed: Speed) -> float:
    from factmem.facts.vocabulary import Vocabulary
    from factmem.training.cost import step_flops
    from factmem.transformer.model import Shape

    subjects, relations = config["subjects"], config["relations"]
    shape = Shape(*(config[name] for name in ("dim", "heads", "head_dim", "width")))
    if config["training"] is None:
        work = 6 * _ITERATIONS["compiled"] * subjects * relations * shape.parameters
        return speed.compiling + work / speed.flops
    words = Vocabulary(subjects, relations, config["noise"], relations * config["answers"])
    training = config["training"]
    steps = _DONE * len(training["learning_rates"]) * training["steps"]
    each = speed.step + step_flops(shape, words, training["batch"]) / speed.flops
    return speed.compiling + steps * each


def _of_memory(config: Mapping[str, Any], speed: Speed) -> float:
    dim, facts, width = config["dim"], config["facts"], config["width"]
    weights = dim * dim if width is None else 2 * width * dim
    work = 6 * facts * (config["outputs"] * dim + weights)
    protocol = config["protocol"]
    steps = _ITERATIONS[config["method"]] if protocol is None else _DONE * protocol["steps"]
    return speed.compiling / 4 + steps * (speed.step / 4 + work / speed.flops)
