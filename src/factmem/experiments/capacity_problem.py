"""What is asked of a capacity search: which sizes there are, and how one is measured."""

import math
from abc import ABC, abstractmethod
from typing import Literal

from factmem._core.errors import FactmemError
from factmem.experiments.search import FastSearch, PaperSearch, Search, Verdict
from factmem.experiments.store import Record
from factmem.experiments.task import Task

__all__ = ["CapacityProblem", "SearchName", "check_criterion", "check_sizes"]

SearchName = Literal["fast", "paper"]

_STEP = 1.04
"""As much as guesses are wrong by, seed by seed."""


def check_criterion(criterion: float) -> None:
    """Raises FactmemError unless this can be the share that counts as stored."""
    if not 0 < criterion <= 1:
        raise FactmemError(f"a criterion is an accuracy above 0, up to 1, not {criterion}")


def check_sizes(**sizes: int) -> None:
    """Raises FactmemError if a size is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise FactmemError(f"{name} is at least 1, not {size}")


class CapacityProblem(ABC):
    """How many facts something of a given shape stores.

    A *size* is the number that is searched for: S of a table, or N of associations.
    """

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Of the shape, counted as the paper counts."""

    @property
    @abstractmethod
    def density(self) -> float:
        """Facts per parameter to expect, from what such shapes were measured to store."""

    @property
    @abstractmethod
    def ratio(self) -> float:
        """How narrow a bracket should be, as upper/lower."""

    @property
    @abstractmethod
    def paper_search(self) -> PaperSearch:
        """The authors' own bisection for this."""

    @abstractmethod
    def facts(self, size: int) -> int:
        """How many facts a size has."""

    @abstractmethod
    def task(self, size: int, seed: int) -> Task:
        """The measurement that says whether a size is stored. Its metrics have `stored`: true,
        false, or null where that was not found out."""

    @property
    def expected(self) -> float:
        """Facts that the shape probably stores."""
        return self.parameters * self.density

    def search(self, name: SearchName, warm_start_ratio: float | None = None) -> Search:
        """The search for the largest size.

        Args:
            name: `fast`, or `paper` for the authors' own.
            warm_start_ratio: how many times the expected facts to begin with, such as the last shape of a
                sweep stored; once if left out.
        """
        if name == "paper":
            return self.paper_search
        facts = self.expected * (1 if warm_start_ratio is None else warm_start_ratio)
        # What stores everything at one shape, as something broken may, is still asked at the next.
        guess = min(self.size_of(facts), FastSearch.most)
        return FastSearch(
            guess if warm_start_ratio is None else self._shared(guess), self.ratio, _STEP
        )

    def _shared(self, guess: int) -> int:
        """The power of the ratio next to a guess: seeds that differ a little begin alike, and what
        was compiled for one serves the others."""
        power = round(math.log(guess) / math.log(self.ratio))
        return min(round(self.ratio**power), FastSearch.most)

    def size_of(self, facts: float) -> int:
        """The size whose facts are nearest to so many, by their ratio; at least 1."""
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
    def verdict(record: Record) -> Verdict:
        """What a measurement says. One that failed says nothing."""
        stored = None if record.metrics is None else record.metrics["stored"]
        if stored is None:
            return Verdict.UNDECIDED
        return Verdict.STORED if stored else Verdict.NOT_STORED
