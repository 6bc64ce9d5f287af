"""Estimate how long a measurement takes, from the measured speed of the machine.

The estimate for a search is the cost of its typical number of probes at the expected size. It is
accurate to within a factor of two, which is enough to warn before a run that takes days.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from factmem.experiments.capacity import CapacitySearches
from factmem.experiments.decodable import LimitedCapacitySearches
from factmem.experiments.measurement import (
    IndependentTasks,
    Measurement,
    MeasurementGroup,
    uncached_tasks,
)
from factmem.experiments.memory_capacity import EXPERIMENT as MEMORY_CAPACITY
from factmem.experiments.memory_spec import MemorySpec
from factmem.experiments.scheduler import Records, sweep
from factmem.experiments.specs import Cost
from factmem.experiments.store import Store
from factmem.experiments.task import Task
from factmem.experiments.transformer_capacity import EXPERIMENT as TRANSFORMER_CAPACITY
from factmem.experiments.transformer_spec import TransformerSpec
from factmem.experiments.workers import Workers

__all__ = ["Speed", "expected_seconds", "measure_speed", "time_training_steps"]

_PROBES_PER_SEARCH = 3.5
"""The average number of sizes that a search probes (benchmarks/capacity.md)."""
_DEFAULT_SECONDS = 10.0
"""For a task of unknown cost."""
_SMALL, _LARGE = (8, 8, 1, 8, 7), (64, 8, 8, 64, 50)
"""d, H, d_h, m and S of the training runs that are timed."""


@dataclass(frozen=True)
class Speed:
    """The speed of one worker while the others are busy.

    Args:
        step_seconds: fixed overhead of a training step.
        flops_per_second: floating-point operations per second.
        compile_seconds: time to compile a new shape.
    """

    step_seconds: float
    flops_per_second: float
    compile_seconds: float

    def seconds(self, cost: Cost) -> float:
        """Return the expected time of a run."""
        per_step = cost.overhead * self.step_seconds + cost.flops_per_step / self.flops_per_second
        return cost.overhead * self.compile_seconds + cost.steps * per_step


def time_training_steps(*, steps: int, seed: int) -> dict[str, Any]:
    """Time a few steps of a small and of a large training run by the paper's protocol."""
    import time
    from dataclasses import replace

    import jax.random as jr

    from factmem.facts import FactTable, PromptDistribution
    from factmem.training import PAPER, runs_for_learning_rates, step_flops, train_transformers
    from factmem.transformer import Shape, Transformer

    protocol = replace(PAPER, steps=steps, evaluations=1)
    timings = {}
    for name, (*sizes, subjects) in (("small", _SMALL), ("large", _LARGE)):
        prompts = PromptDistribution.from_table(FactTable.random(subjects, subjects, 8, seed=seed))
        shape = Shape(*sizes)
        start = Transformer.draw(shape, prompts.vocabulary, key=jr.key(seed))
        seconds = []
        for repetition in range(3):  # the first compiles
            begin = time.perf_counter()
            runs = runs_for_learning_rates(start, prompts, protocol)
            train_transformers(runs, protocol, key=jr.key(repetition))
            seconds.append(time.perf_counter() - begin)
        timings[name] = {
            "compile": max(0.0, seconds[0] - min(seconds)),
            "step": min(seconds) / (steps * len(protocol.learning_rates)),
            "flops": step_flops(shape, prompts.vocabulary, protocol.batch_size),
        }
    return timings


def measure_speed(store: Store, workers: Workers, steps: int = 48) -> Speed:
    """Time all workers at once, which takes about half a minute."""
    timings = uncached_tasks(time_training_steps, range(max(1, workers.free())), steps=steps)
    known = sweep(timings.pending, store, workers)
    return _fit_speed([result for result in timings.result(known) if result])


def _fit_speed(results: list[Mapping[str, Any]]) -> Speed:
    """Fit time = step + flops/speed to both training runs, averaged over workers."""

    def mean(size: str, name: str) -> float:
        return sum(result[size][name] for result in results) / len(results)

    small, large = mean("small", "step"), mean("large", "step")
    additional_flops = mean("large", "flops") - mean("small", "flops")
    seconds_per_flop = max((large - small) / additional_flops, 1e-15)
    step = max(small - seconds_per_flop * mean("small", "flops"), 0.0)
    return Speed(step, 1 / seconds_per_flop, mean("large", "compile"))


def expected_seconds(measurement: Measurement, known: Records, speed: Speed) -> float:
    """Estimate the time that the rest of a measurement takes on one worker.

    Raises:
        TypeError: the kind of measurement is unknown.
    """
    if isinstance(measurement, IndependentTasks):
        missing = [task for task in measurement.tasks if task.identity not in known]
        return sum((_task_seconds(task, speed) for task in missing), 0.0)
    if isinstance(measurement, LimitedCapacitySearches):
        return expected_seconds(measurement.searches, known, speed)
    if isinstance(measurement, CapacitySearches):
        return _search_seconds(measurement, known, speed)
    parts = getattr(measurement, "measurements", None)
    if isinstance(measurement, MeasurementGroup):
        parts = measurement.parts.values()
    if parts is None:
        raise TypeError(f"cannot estimate the time of a {type(measurement).__name__}")
    return sum((expected_seconds(part, known, speed) for part in parts), 0.0)


def _search_seconds(searches: CapacitySearches, known: Records, speed: Speed) -> float:
    total = 0.0
    for seed in searches.seeds:
        started = searches.seed_searches(seed, known)
        finished = len(started) - (not started[-1].finished)
        for problem in searches.problems[finished:]:
            size = problem.size_of(problem.expected_facts)
            total += _PROBES_PER_SEARCH * _task_seconds(problem.task(size, seed), speed)
    return total


def _task_seconds(task: Task, speed: Speed) -> float:
    config = dict(task.config)
    if task.experiment.name == TRANSFORMER_CAPACITY.name:
        return speed.seconds(TransformerSpec.from_config(config).cost())
    if task.experiment.name == MEMORY_CAPACITY.name:
        del config["criterion"]
        return speed.seconds(MemorySpec.from_config(config).cost())
    return _DEFAULT_SECONDS
