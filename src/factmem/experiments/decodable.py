"""Limits set by the embeddings: answers that no output vector decodes to.

An answer inside the convex hull of other answers is never decoded, whatever the weights are. In
low dimensions this decides how many facts are stored, long before the parameters do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factmem.experiments.capacity import Capacity, CapacitySearches
from factmem.experiments.scheduler import PendingTasks, Records
from factmem.experiments.task import Experiment, Task
from factmem.experiments.transformer_capacity import TransformerCapacityProblem
from factmem.experiments.transformer_spec import TransformerSpec

__all__ = ["CapacityWithLimits", "LimitedCapacitySearches", "measure_decodable"]

_CONFIG = ("dim", "subjects", "relations", "answers", "noise", "seed")


def measure_decodable(
    *, dim: int, subjects: int, relations: int, answers: int, noise: int, seed: int
) -> dict[str, Any]:
    """Measure the fraction of facts whose answer some output vector decodes to.

    The table and the embeddings are those that a training run with the same seed uses.

    Args:
        dim: d.
        subjects, relations, answers: S, R and D of the random table.
        noise: number of distinct noise tokens.
        seed: the seed of table and embeddings.
    """
    import numpy as np

    from factmem.experiments.specs import PromptSpec, TableSpec
    from factmem.experiments.transformer_methods.trained import Train
    from factmem.memories.decoding import decodable
    from factmem.training import PAPER
    from factmem.transformer.shape import Shape

    spec = TransformerSpec(
        table=TableSpec.random(subjects, relations, answers),
        shape=Shape(dim, 1, 1, 0),
        method=Train(protocol=PAPER),
        prompts=PromptSpec(noise=noise),
        seed=seed,
    )
    possible = decodable(np.asarray(spec.draw_embeddings().outputs))
    return {
        "decodable_facts_fraction": float(np.mean(possible[spec.draw().table.fact_ids[2]])),
        "decodable_answers_fraction": float(np.mean(possible)),
    }


EXPERIMENT = Experiment("decodable answers", 2, measure_decodable)


@dataclass(frozen=True)
class CapacityWithLimits:
    """Capacities of several shapes, and whether the embeddings alone limit them.

    Args:
        capacities: the capacity of each shape.
        decodable_fraction: the fraction of facts that any model could answer, at the smallest size
            that is not stored, by (index in `capacities`, seed).
    """

    capacities: Sequence[Capacity]
    decodable_fraction: Mapping[tuple[int, int], float]

    def limited(self, index: int) -> bool:
        """Return whether, for most seeds, no model could store the smallest size not stored."""
        capacity = self.capacities[index]
        criterion = getattr(capacity.problem, "criterion", 1.0)
        impossible = [
            self.decodable_fraction.get((index, seed.seed), 1.0) < criterion
            for seed in capacity.seeds
        ]
        return sum(impossible) > len(impossible) / 2


class LimitedCapacitySearches:
    """Capacity searches of trained transformers, and the limits that their embeddings set."""

    def __init__(self, searches: CapacitySearches) -> None:
        self.searches = searches
        self._tasks: dict[tuple[int, int, int], Task] = {}

    def pending(self, known: Records) -> PendingTasks:
        """Return the pending tasks of the searches, and of the limits where searches are done."""
        pending = self.searches.pending(known)
        limits = [t for t in self._limit_tasks(known).values() if t.identity not in known]
        return PendingTasks([*limits, *pending.needed], pending.speculative)

    def remaining(self, known: Records) -> int:
        """Estimate how many tasks are still to be executed."""
        searches = self.searches
        missing = sum(task.identity not in known for task in self._limit_tasks(known).values())
        later = len(searches.problems) - len(searches.result(known))
        return searches.remaining(known) + missing + later * len(searches.seeds)

    def used_tasks(self, known: Records) -> list[Task]:
        """Return the tasks of the searches and of the limits."""
        return [*self.searches.used_tasks(known), *self._limit_tasks(known).values()]

    def result(self, known: Records) -> CapacityWithLimits:
        """Return the result of all shapes, or of those whose searches are finished."""
        records = {at: known.get(task.identity) for at, task in self._limit_tasks(known).items()}
        metrics = {at: record.metrics or {} for at, record in records.items() if record}
        name = "decodable_facts_fraction"
        fractions = {at: entries.get(name, 1.0) for at, entries in metrics.items()}
        return CapacityWithLimits(self.searches.result(known), fractions)

    def _limit_tasks(self, known: Records) -> dict[tuple[int, int], Task]:
        tasks = {}
        for index, capacity in enumerate(self.searches.result(known)):
            for seed in capacity.seeds:
                if seed.bracket.upper is not None:
                    size = seed.bracket.upper
                    tasks[index, seed.seed] = self._limit_task(index, seed.seed, size)
        return tasks

    def _limit_task(self, index: int, seed: int, size: int) -> Task:
        """Return the task, cached as those of the searches are."""
        key = (index, seed, size)
        if key not in self._tasks:
            problem = self.searches.problems[index]
            assert isinstance(problem, TransformerCapacityProblem)
            config = problem.spec(size, seed).config()
            self._tasks[key] = Task(EXPERIMENT, {name: config[name] for name in _CONFIG})
        return self._tasks[key]
