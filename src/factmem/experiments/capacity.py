"""How many facts shapes store: every seed's own search, on all the workers that there are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from factmem._core.errors import FactmemError
from factmem.experiments.capacity_problem import CapacityProblem, SearchName
from factmem.experiments.scheduler import Records, PendingTasks, SweepState, sweep
from factmem.experiments.search import Bracket, Outcome, Search, SearchTrace, Verdict, ahead, trace_search
from factmem.experiments.store import Record, Store
from factmem.experiments.task import Task
from factmem.experiments.workers import Workers

__all__ = [
    "Capacity",
    "Progress",
    "CapacitySearches",
    "SeedCapacity",
    "find_capacities",
    "find_capacity",
]

_AHEAD = 8
"""Sizes that a search looks ahead, where workers have nothing else to do."""
_MOST_AHEAD = 256
"""All searches together."""
_USUAL_PROBES = 3
"""That a search from a good guess takes, for telling how much is left."""


@dataclass(frozen=True)
class SeedCapacity:
    """What one seed stores.

    Args:
        seed: which.
        bracket: the largest size that is stored, and the smallest above it that is not.
        outcome: how the search ended.
        probes: the measurements that it rests on by size, in the order of the search.
    """

    seed: int
    bracket: Bracket
    outcome: Outcome
    probes: Mapping[int, Record]

    @property
    def largest(self) -> Record | None:
        """The measurement of the largest size that is stored."""
        return None if self.bracket.lower is None else self.probes[self.bracket.lower]


@dataclass(frozen=True)
class Capacity:
    """What a shape stores.

    Args:
        problem: which was asked.
        seeds: the answer for each seed.
    """

    problem: CapacityProblem
    seeds: tuple[SeedCapacity, ...]

    @property
    def median(self) -> SeedCapacity:
        """The seed in the middle; of two, the one that stores less."""
        ranked = sorted(self.seeds, key=lambda seed: (seed.bracket.lower or 0, seed.seed))
        return ranked[(len(ranked) - 1) // 2]

    @property
    def facts(self) -> int:
        """That the median seed stores; 0 if nothing that was tried is stored."""
        lower = self.median.bracket.lower
        return 0 if lower is None else self.problem.facts(lower)


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Args:
        done: measurements that are there.
        running: those that are being made.
        left: about how many will be needed yet.
        brackets: of each seed of the problem that is worked on.
    """

    done: int
    running: int
    left: int
    brackets: tuple[Bracket, ...]


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
    """How many facts a shape stores.

    Args:
        problem: the shape, and what storing means.
        seeds: each has a search of its own.
        store: what is in it is not measured again; what is measured is kept in it.
        workers: who measures.
        search: `fast`, or the authors' own.
        fresh: whether the store is ignored.
        report: told how far it is.

    Raises:
        FactmemError: no seed, or one twice.

    docs/runs.md has an example.
    """
    (found,) = find_capacities(
        [problem], seeds, store, workers, search=search, fresh=fresh, report=report
    )
    return found


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
    """How many facts several shapes store, such as the sizes of one line of a figure.

    For every seed the shapes are searched in their order, each from as many times the expected
    facts as the last one stored. See `find_capacity` for the arguments.
    """
    searches = CapacitySearches(problems, seeds, search)
    known = sweep(
        searches.pending,
        store,
        workers,
        fresh=fresh,
        report=None if report is None else lambda state: report(searches.progress(state)),
    )
    return searches.result(known)


@dataclass(frozen=True)
class _Search:
    """One seed's search for one problem, as far as it is."""

    problem: CapacityProblem
    seed: int
    search: Search
    task: Callable[[int], Task]
    walk: SearchTrace

    @classmethod
    def at(
        cls,
        problem: CapacityProblem,
        seed: int,
        search: Search,
        task: Callable[[int], Task],
        known: Records,
    ) -> "_Search":
        def verdict(size: int) -> Verdict | None:
            record = known.get(task(size).identity)
            return None if record is None else problem.verdict(record)

        return cls(problem, seed, search, task, trace_search(search, verdict))

    @property
    def warm_start_ratio(self) -> float | None:
        """How many times as many facts are stored as was to be expected."""
        lower, expected = self.trace.bracket.lower, self.problem.expected
        return None if lower is None else self.problem.facts(lower) / expected

    @property
    def left(self) -> int:
        """About how many sizes will be tried yet."""
        return self.search.most_left(self.trace.bracket)

    def next(self) -> Iterator[Task]:
        """The measurement that it waits for, and then those that it may wait for next."""
        for size in ahead(self.search, self.trace.bracket):
            yield self.task(size)

    def result(self, known: Records) -> SeedCapacity:
        """The answer, once it is over."""
        assert self.trace.next_size is None, "it is over"
        tasks = [self.task(size) for size in self.trace.sizes]
        return SeedCapacity(
            self.seed,
            self.trace.bracket,
            self.search.outcome(self.trace.bracket),
            {size: known[task.identity] for size, task in zip(self.trace.sizes, tasks, strict=True)},
        )


class CapacitySearches:
    """All searches, as far as they are once some results are known; see `find_capacities`."""

    def __init__(
        self,
        problems: Sequence[CapacityProblem],
        seeds: Sequence[int],
        search: SearchName = "fast",
    ) -> None:
        if not seeds or len(set(seeds)) != len(seeds):
            raise FactmemError("a search has at least one seed, and each once")
        self.problems, self.seeds = problems, seeds
        # The more seeds there are, the less do idle cores have to guess.
        self.ahead = max(1, min(_AHEAD, _MOST_AHEAD // len(seeds)))
        self.search: SearchName = search
        # Asked for after every result: made once, for the identity of a task takes a millisecond.
        self._tasks: dict[tuple[CapacityProblem, int, int], Task] = {}

    def task(self, problem: CapacityProblem, seed: int, size: int) -> Task:
        """The measurement of a size."""
        key = (problem, seed, size)
        if key not in self._tasks:
            self._tasks[key] = problem.task(size, seed)
        return self._tasks[key]

    def of_seed(self, seed: int, known: Records) -> list[_Search]:
        """A seed's searches, up to the first that is not over."""
        found: list[_Search] = []
        for problem in self.problems:
            search = problem.search(self.search, found[-1].warm_start_ratio if found else None)
            task = partial(self.task, problem, seed)
            found.append(_Search.at(problem, seed, search, task, known))
            if found[-1].trace.next_size is not None:
                break
        return found

    def pending(self, known: Records) -> PendingTasks:
        """What every search lacks, and what it may lack next: in turns, so that all go on."""
        current = [self.of_seed(seed, known)[-1] for seed in self.seeds]
        rows = [[*islice(search.next(), self.ahead)] for search in current]
        turns = [[row[place] for row in rows if place < len(row)] for place in range(self.ahead)]
        missing = [task for turn in turns[1:] for task in turn if task.identity not in known]
        return PendingTasks(turns[0], missing)

    def result(self, known: Records) -> list[Capacity]:
        """The answers to all problems, or to the first ones, as far as every seed has come."""
        of_seeds = [
            [search for search in self.of_seed(seed, known) if search.trace.next_size is None]
            for seed in self.seeds
        ]
        return [
            Capacity(searches[0].problem, tuple(search.result(known) for search in searches))
            for searches in zip(*of_seeds, strict=False)
        ]

    def progress(self, state: SweepState) -> Progress:
        """How far all searches are together."""
        found = [self.of_seed(seed, state.known) for seed in self.seeds]
        return Progress(
            done=len(state.known),
            running=state.running,
            left=max(self._left(found), state.running),
            brackets=tuple(searches[-1].trace.bracket for searches in found),
        )

    def remaining(self, known: Records) -> int:
        """About how many sizes will be tried yet."""
        return self._left([self.of_seed(seed, known) for seed in self.seeds])

    def _left(self, found: Sequence[Sequence[_Search]]) -> int:
        later = sum(len(self.problems) - len(searches) for searches in found)
        return sum(searches[-1].left for searches in found) + _USUAL_PROBES * later
