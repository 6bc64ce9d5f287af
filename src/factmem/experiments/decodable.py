"""What no training can change: answers that the given embeddings leave without a direction.

An answer within the convex hull of other answers is never decoded, whatever the weights are. In
few dimensions that decides how many facts are stored, long before parameters do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factmem.experiments.capacity import Capacity, CapacitySearches
from factmem.experiments.scheduler import Records, PendingTasks
from factmem.experiments.task import Experiment, Task

__all__ = ["CapacityWithLimits", "LimitedCapacitySearches", "measure_decodable"]


def measure_decodable(
    *, dim: int, subjects: int, relations: int, answers: int, noise: int, seed: int
) -> dict[str, Any]:
    """How many facts have an answer that anything decodes to, with the tables and embeddings that
    `measure_transformer` trains on.

    Args:
        dim: d.
        subjects, relations, answers: S, R and D of the random table.
        noise: how many different noise tokens there are.
        seed: of table and embeddings.
    """
    import jax.random as jr
    import numpy as np

    from factmem.facts import FactTable, PromptDistribution
    from factmem.memories.decoding import decodable
    from factmem.transformer import EXPERIMENTS, Embeddings

    table = FactTable.random(subjects, relations, answers, seed=seed)
    vocabulary = PromptDistribution.of(table, noise=noise).vocabulary
    drawn = Embeddings.draw(jr.split(jr.split(jr.key(seed), 3)[0])[1], dim, vocabulary, EXPERIMENTS)
    given = decodable(np.asarray(drawn.outputs))
    return {
        "facts": float(np.mean(given[table.fact_ids[2]])),
        "answers": float(np.mean(given)),
    }


MEASURE = Experiment("decodable answers", 1, measure_decodable)


@dataclass(frozen=True)
class CapacityWithLimits:
    """What shapes store, and whether embeddings alone keep them from more.

    Args:
        capacities: of each shape.
        possible: the share of facts that some model could get right, by shape and seed, at the
            smallest size that is not stored; shapes as places in `capacities`.
    """

    capacities: Sequence[Capacity]
    possible: Mapping[tuple[int, int], float]

    def limited(self, place: int) -> bool:
        """Whether with most seeds no model at all could store the first size that was not."""
        capacity = self.capacities[place]
        criterion = getattr(capacity.problem, "criterion", 1.0)
        kept = [self.possible.get((place, seed.seed), 1.0) < criterion for seed in capacity.seeds]
        return sum(kept) > len(kept) / 2


class LimitedCapacitySearches:
    """CapacitySearches of trained transformers, and then what their embeddings allow."""

    def __init__(self, searches: CapacitySearches) -> None:
        self.searches = searches
        self._made: dict[tuple[int, int, int], Task] = {}

    def pending(self, known: Records) -> PendingTasks:
        """What searches lack, and what embeddings allow where searches are over."""
        searched = self.searches.pending(known)
        tasks = self._tasks(known).values()
        allowed = [task for task in tasks if task.identity not in known]
        return PendingTasks([*allowed, *searched.needed], searched.useful)

    def remaining(self, known: Records) -> int:
        """About how many measurements are still to be made."""
        searches, tasks = self.searches, self._tasks(known).values()
        missing = sum(task.identity not in known for task in tasks)
        later = len(searches.problems) - len(searches.result(known))
        return searches.remaining(known) + missing + later * len(searches.seeds)

    def result(self, known: Records) -> CapacityWithLimits:
        """Of all shapes, or of those whose searches are over."""
        records = {place: known.get(task.identity) for place, task in self._tasks(known).items()}
        shares = {place: record.metrics or {} for place, record in records.items() if record}
        possible = {place: share.get("facts", 1.0) for place, share in shares.items()}
        return CapacityWithLimits(self.searches.result(known), possible)

    def _tasks(self, known: Records) -> dict[tuple[int, int], Task]:
        found = {}
        for place, capacity in enumerate(self.searches.result(known)):
            for seed in capacity.seeds:
                if seed.bracket.upper is not None:
                    found[place, seed.seed] = self._task(place, seed.seed, seed.bracket.upper)
        return found

    def _task(self, place: int, seed: int, size: int) -> Task:
        """Made once, as those of searches are."""
        key = (place, seed, size)
        if key not in self._made:
            config = self.searches.task(self.searches.problems[place], seed, size).config
            names = ("dim", "subjects", "relations", "answers", "noise", "seed")
            self._made[key] = Task(MEASURE, {name: config[name] for name in names})
        return self._made[key]
