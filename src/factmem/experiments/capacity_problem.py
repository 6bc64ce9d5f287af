"""Capacity problems: which sizes are searched, and how a size is measured."""

import math
from abc import ABC, abstractmethod
from typing import Literal

from factmem._core.errors import ArgumentError, FactmemError
from factmem.experiments.search import FastSearch, PaperSearch, ProbeVerdict, Search
from factmem.experiments.store import Record
from factmem.experiments.task import Task

__all__ = ["CapacityProblem", "SearchName", "check_criterion", "check_sizes"]

SearchName = Literal["fast", "paper"]

_INITIAL_STEP_RATIO = 1.04
"""The ratio of the first step of a search: the typical error of its guess between seeds."""


def check_criterion(criterion: float) -> None:
    """Raise FactmemError unless the criterion is an accuracy above 0."""
    if not 0 < criterion <= 1:
        raise ArgumentError("criterion", f"must be above 0 and at most 1, got {criterion}")


def check_sizes(**sizes: int) -> None:
    """Raise FactmemError if a size is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise FactmemError(f"{name} must be at least 1, got {size}")


class CapacityProblem(ABC):
    """The question how many facts a given shape stores.

    A *size* is the number that is searched for: S of a table, or N of associations.
    """

    @property
    @abstractmethod
    def parameters(self) -> int:
        """The number of parameters, as the paper counts them."""

    @property
    @abstractmethod
    def expected_facts_per_parameter(self) -> float:
        """The expected number of facts per parameter, from earlier measurements."""

    @property
    @abstractmethod
    def ratio(self) -> float:
        """The width of the final bracket, as upper/lower."""

    @property
    @abstractmethod
    def paper_search(self) -> PaperSearch:
        """The authors' bisection for this problem."""

    @abstractmethod
    def facts(self, size: int) -> int:
        """Return the number of facts of a size."""

    @abstractmethod
    def task(self, size: int, seed: int) -> Task:
        """Return the measurement that decides whether a size is stored.

        Its metrics have an entry `stored`: true, false, or null if it could not be decided.
        """

    @property
    def expected_facts(self) -> float:
        """The number of facts that the shape is expected to store."""
        return self.parameters * self.expected_facts_per_parameter

    def search(self, name: SearchName, warm_start_ratio: float | None = None) -> Search:
        """Return the search for the largest size.

        Args:
            name: `fast`, or `paper` for the authors' bisection.
            warm_start_ratio: stored divided by expected facts at the last shape of a sweep; the
                search starts from the expected facts times this.
        """
        if name == "paper":
            return self.paper_search
        facts = self.expected_facts * (1 if warm_start_ratio is None else warm_start_ratio)
        # A broken method may store everything at one shape; the next shape is still searched.
        guess = min(self.size_of(facts), FastSearch.maximum)
        if warm_start_ratio is not None:
            guess = self._round_guess(guess)
        return FastSearch(guess, self.ratio, _INITIAL_STEP_RATIO)

    def _round_guess(self, guess: int) -> int:
        """Round to a power of the ratio, so that similar seeds start alike and share programs."""
        power = round(math.log(guess) / math.log(self.ratio))
        return min(round(self.ratio**power), FastSearch.maximum)

    def size_of(self, facts: float) -> int:
        """Return the size whose number of facts is closest by ratio; at least 1."""
        above = 2
        while self.facts(above) <= facts:
            above *= 2
        size = above // 2
        while above - size > 1:
            middle = (size + above) // 2
            size, above = (middle, above) if self.facts(middle) <= facts else (size, middle)
        more, fewer = self.facts(size + 1) / max(facts, 1), max(facts, 1) / self.facts(size)
        return size + 1 if more < fewer else size

    @staticmethod
    def verdict(record: Record) -> ProbeVerdict:
        """Return the verdict of a measurement; a failed one is undecided."""
        stored = None if record.metrics is None else record.metrics["stored"]
        if stored is None:
            return ProbeVerdict.UNDECIDED
        return ProbeVerdict.STORED if stored else ProbeVerdict.NOT_STORED
