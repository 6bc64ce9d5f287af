"""Capacity: the most facts that a shape stores, by one search per seed on all workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from factmem._core.errors import FactmemError
from factmem.experiments.capacity_problem import CapacityProblem, SearchName
from factmem.experiments.measurement import Progress, measure
from factmem.experiments.scheduler import PendingTasks, Records
from factmem.experiments.search import (
    Bracket,
    ProbeVerdict,
    Search,
    SearchStatus,
    SearchTrace,
    likely_sizes,
    trace_search,
)
from factmem.experiments.store import Record, Store
from factmem.experiments.task import Task
from factmem.experiments.workers import Workers

__all__ = [
    "Capacity",
    "CapacitySearches",
    "SeedCapacity",
    "find_capacities",
    "find_capacity",
]

_LOOK_AHEAD = 8
"""Sizes that one search may try in advance on idle workers."""
_MAX_LOOK_AHEAD = 256
"""Sizes that all searches together may try in advance."""
_TYPICAL_PROBES = 3
"""Number of sizes that a search from a good guess tries; for progress only."""


@dataclass(frozen=True)
class SeedCapacity:
    """The capacity for one seed.

    Args:
        seed: the seed.
        bracket: the largest stored size, and the smallest size above it that is not stored.
        status: how the search ended.
        probes: the measurements of the search by size, in order.
    """

    seed: int
    bracket: Bracket
    status: SearchStatus
    probes: Mapping[int, Record]

    @property
    def largest(self) -> Record | None:
        """The measurement of the largest stored size."""
        return None if self.bracket.lower is None else self.probes[self.bracket.lower]


@dataclass(frozen=True)
class Capacity:
    """The capacity of a shape.

    Args:
        problem: the capacity problem.
        seeds: the result for each seed.
    """

    problem: CapacityProblem
    seeds: tuple[SeedCapacity, ...]

    @property
    def median(self) -> SeedCapacity:
        """The median seed; of two in the middle, the one that stores less."""
        ranked = sorted(self.seeds, key=lambda seed: (seed.bracket.lower or 0, seed.seed))
        return ranked[(len(ranked) - 1) // 2]

    @property
    def facts(self) -> int:
        """The number of facts that the median seed stores; 0 if no size is stored."""
        lower = self.median.bracket.lower
        return 0 if lower is None else self.problem.facts(lower)


def find_capacity(
    problem: CapacityProblem,
    seeds: Sequence[int],
    store: Store,
    workers: Workers,
    *,
    search: SearchName = "fast",
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Capacity:
    """Find the largest number of facts that a shape stores.

    Args:
        problem: the shape, and when a size counts as stored.
        seeds: each has its own search.
        store: results that it has are not measured again; new results are written to it.
        workers: the processes that execute tasks.
        search: `fast`, or `paper` for the authors' bisection.
        fresh: ignore stored results and replace them.
        report: called with the progress.

    Raises:
        FactmemError: there is no seed, or a seed is repeated.

    docs/runs.md has an example.
    """
    (capacity,) = find_capacities(
        [problem], seeds, store, workers, search=search, fresh=fresh, report=report
    )
    return capacity


def find_capacities(
    problems: Sequence[CapacityProblem],
    seeds: Sequence[int],
    store: Store,
    workers: Workers,
    *,
    search: SearchName = "fast",
    fresh: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> list[Capacity]:
    """Find the capacity of several shapes, such as the sizes of one line of a plot.

    For every seed the shapes are searched in order. Each search starts from the expected facts
    times the ratio of stored to expected facts at the previous shape. The arguments are those of
    `find_capacity`.
    """
    searches = CapacitySearches(problems, seeds, search)

    def report_brackets(progress: Progress) -> None:
        assert report is not None
        report(replace(progress, brackets=searches.brackets(progress.known)))

    return measure(
        searches, store, workers, fresh=fresh, report=None if report is None else report_brackets
    )


@dataclass(frozen=True)
class _SeedSearch:
    """The search of one seed for one problem, given the known records."""

    problem: CapacityProblem
    seed: int
    search: Search
    task: Callable[[int], Task]
    trace: SearchTrace

    @classmethod
    def from_records(
        cls,
        problem: CapacityProblem,
        seed: int,
        search: Search,
        task: Callable[[int], Task],
        known: Records,
    ) -> "_SeedSearch":
        def verdict(size: int) -> ProbeVerdict | None:
            record = known.get(task(size).identity)
            return None if record is None else problem.verdict(record)

        return cls(problem, seed, search, task, trace_search(search, verdict))

    @property
    def finished(self) -> bool:
        return self.trace.next_size is None

    @property
    def warm_start_ratio(self) -> float | None:
        """Stored facts divided by expected facts."""
        lower, expected = self.trace.bracket.lower, self.problem.expected_facts
        return None if lower is None else self.problem.facts(lower) / expected

    @property
    def remaining(self) -> int:
        """Estimate how many sizes are still to be tried."""
        return self.search.max_remaining(self.trace.bracket)

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the sizes that were tried."""
        return [self.task(size) for size in self.trace.sizes]

    def next_tasks(self) -> Iterator[Task]:
        """Yield the task that the search waits for, then those that it may need next."""
        for size in likely_sizes(self.search, self.trace.bracket):
            yield self.task(size)

    def result(self, known: Records) -> SeedCapacity:
        """Return the result of a finished search."""
        assert self.finished
        records = [known[task.identity] for task in self.tasks]
        return SeedCapacity(
            self.seed,
            self.trace.bracket,
            self.search.status(self.trace.bracket),
            dict(zip(self.trace.sizes, records, strict=True)),
        )


class CapacitySearches:
    """The searches of all seeds and problems as one measurement; see `find_capacities`.

    Args:
        problems: searched in order.
        seeds: each has its own searches.
        search: `fast`, or `paper` for the authors' bisection.

    Raises:
        FactmemError: there is no seed, or a seed is repeated.
    """

    def __init__(
        self,
        problems: Sequence[CapacityProblem],
        seeds: Sequence[int],
        search: SearchName = "fast",
    ) -> None:
        if not seeds or len(set(seeds)) != len(seeds):
            raise FactmemError(f"seeds must be distinct and not empty, got {list(seeds)}")
        self.problems, self.seeds = problems, seeds
        # With more seeds, fewer workers are idle.
        self.look_ahead = max(1, min(_LOOK_AHEAD, _MAX_LOOK_AHEAD // len(seeds)))
        self.search: SearchName = search
        # Cached, because tasks are needed after every result and hashing takes a millisecond.
        self._tasks: dict[tuple[CapacityProblem, int, int], Task] = {}

    def task(self, problem: CapacityProblem, seed: int, size: int) -> Task:
        """Return the task that measures a size."""
        key = (problem, seed, size)
        if key not in self._tasks:
            self._tasks[key] = problem.task(size, seed)
        return self._tasks[key]

    def seed_searches(self, seed: int, known: Records) -> list[_SeedSearch]:
        """Return the searches of a seed, up to the first that is not finished."""
        searches: list[_SeedSearch] = []
        for problem in self.problems:
            ratio = searches[-1].warm_start_ratio if searches else None
            search = problem.search(self.search, ratio)
            task = partial(self.task, problem, seed)
            searches.append(_SeedSearch.from_records(problem, seed, search, task, known))
            if not searches[-1].finished:
                break
        return searches

    def pending(self, known: Records) -> PendingTasks:
        """Return the tasks that the searches wait for, and those that they may need next.

        The searches take turns in both lists.
        """
        current = [self.seed_searches(seed, known)[-1] for seed in self.seeds]
        rows = [[*islice(search.next_tasks(), self.look_ahead)] for search in current]
        turns = [[row[i] for row in rows if i < len(row)] for i in range(self.look_ahead)]
        missing = [task for turn in turns[1:] for task in turn if task.identity not in known]
        return PendingTasks(turns[0], missing)

    def result(self, known: Records) -> list[Capacity]:
        """Return the capacities of all problems, or of those that every seed has finished."""
        finished = [
            [search for search in self.seed_searches(seed, known) if search.finished]
            for seed in self.seeds
        ]
        return [
            Capacity(searches[0].problem, tuple(search.result(known) for search in searches))
            for searches in zip(*finished, strict=False)
        ]

    def used_tasks(self, known: Records) -> list[Task]:
        """Return the tasks of all sizes that the searches tried."""
        searches = [search for seed in self.seeds for search in self.seed_searches(seed, known)]
        return [task for search in searches for task in search.tasks]

    def brackets(self, known: Records) -> tuple[Bracket, ...]:
        """Return the bracket of each seed for its current problem."""
        return tuple(self.seed_searches(seed, known)[-1].trace.bracket for seed in self.seeds)

    def remaining(self, known: Records) -> int:
        """Estimate how many sizes are still to be tried."""
        searches = [self.seed_searches(seed, known) for seed in self.seeds]
        later = sum(len(self.problems) - len(of_seed) for of_seed in searches)
        return sum(of_seed[-1].remaining for of_seed in searches) + _TYPICAL_PROBES * later
