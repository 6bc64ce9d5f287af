"""Find the largest size that is stored: a search as a pure state machine.

A search knows only its bracket, and the next size to try follows from it. An interrupted search
therefore resumes from the known verdicts, and extra sizes tried on idle cores change nothing.

Searches assume that success falls with size: a size above one that is not stored is not stored
either. Where verdicts contradict this (training is stochastic), the bracket is one place at which
a stored size is followed by one that is not stored.
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count

from factmem._core.errors import FactmemError
from factmem._core.result import Status

__all__ = [
    "Bracket",
    "FastSearch",
    "PaperSearch",
    "ProbeVerdict",
    "Search",
    "SearchStatus",
    "SearchTrace",
    "likely_sizes",
    "trace_search",
]


class ProbeVerdict(Enum):
    """Whether a size is stored."""

    STORED = "stored"
    NOT_STORED = "not_stored"
    UNDECIDED = "undecided"
    """Neither is proved. The search treats the size as not stored and reports it as undecided."""


class SearchStatus(Status):
    """How a capacity search ended."""

    BRACKETED = "A stored size and the next size that is not stored were found."
    ALL_STORED = "Even the largest size allowed is stored."
    NONE_STORED = "Not even the smallest size allowed is stored."
    UNTESTED = "No size that was tried is stored; the lower end of the bracket was never tried."


@dataclass(frozen=True)
class Bracket:
    """What a search knows.

    Args:
        lower: the largest size known to be stored; None if there is none.
        upper: the smallest size above it that is not stored; None if there is none.
        undecided: whether the verdict at `upper` is only undecided.
    """

    lower: int | None = None
    upper: int | None = None
    undecided: bool = False

    def after(self, size: int, verdict: ProbeVerdict) -> "Bracket":
        """Return the bracket after the verdict on a size inside it."""
        if verdict is ProbeVerdict.STORED:
            return replace(self, lower=size)
        return replace(self, upper=size, undecided=verdict is ProbeVerdict.UNDECIDED)


class Search(ABC):
    """A rule for the next size to try."""

    @abstractmethod
    def next(self, bracket: Bracket) -> int | None:
        """Return the next size to try, or None if the bracket is narrow enough."""

    @abstractmethod
    def status(self, bracket: Bracket) -> SearchStatus:
        """Return how a finished search ended."""

    @abstractmethod
    def max_remaining(self, bracket: Bracket) -> int:
        """Estimate how many sizes are still to be tried if the bracket need not expand."""

    @abstractmethod
    def probability_stored(self, bracket: Bracket, size: int) -> float:
        """Estimate how likely a size inside the bracket is stored; used for looking ahead."""


@dataclass(frozen=True)
class FastSearch(Search):
    """Expand from a good guess in growing steps, then bisect geometrically.

    With a first step σ and a guess g the sizes after successes are g, gσ, gσ², gσ⁴, gσ⁸, …: the
    distance from the guess doubles on a logarithmic scale. They shrink in the same way after
    failures. A correct guess costs two tries, one that is wrong by σ three, and one that is wrong
    by a factor f about log₂(log f / log σ) more to find the other end, and as many to bisect.

    Args:
        guess: the first size.
        ratio: the search ends when upper/lower is at most this, or when they are adjacent.
        step: σ, the typical error of the guess; at least `ratio` is used.
        minimum, maximum: the smallest and the largest size allowed.

    Raises:
        FactmemError: the ratio is not above 1, or the sizes are out of order.
    """

    guess: int
    ratio: float = 1.05
    step: float = 1.0
    minimum: int = 1
    maximum: int = 2**30

    def __post_init__(self) -> None:
        if not 1 < self.ratio < math.inf:
            raise FactmemError(f"ratio must be above 1, got {self.ratio}")
        if not 1 <= self.minimum <= self.guess <= self.maximum:
            raise FactmemError(
                f"guess must be from {self.minimum} to {self.maximum}, got {self.guess}"
            )

    def next(self, bracket: Bracket) -> int | None:
        """Return the next size to try, or None if the bracket is narrow enough."""
        lower, upper = bracket.lower, bracket.upper
        if lower is None and upper is None:
            return self.guess
        if upper is None:
            assert lower is not None
            above = int(lower * max(lower / self.guess, self.step, self.ratio))
            return min(self.maximum, max(lower + 1, above)) if lower < self.maximum else None
        if lower is None:
            below = math.ceil(upper / max(self.guess / upper, self.step, self.ratio))
            return max(self.minimum, min(upper - 1, below)) if upper > self.minimum else None
        if upper <= max(lower + 1, lower * self.ratio):
            return None
        return min(upper - 1, max(lower + 1, round(math.sqrt(lower * upper))))

    def status(self, bracket: Bracket) -> SearchStatus:
        """Return how a finished search ended."""
        if bracket.upper is None:
            return SearchStatus.ALL_STORED
        return SearchStatus.NONE_STORED if bracket.lower is None else SearchStatus.BRACKETED

    def max_remaining(self, bracket: Bracket) -> int:
        """Estimate how many sizes are still to be tried if the bracket need not expand."""
        lower, upper = bracket.lower, bracket.upper
        if lower is None or upper is None:
            return 2
        return _bisections(math.log(upper / lower), math.log(max(self.ratio, 1 + 1 / lower)))

    def probability_stored(self, bracket: Bracket, size: int) -> float:
        """Assume a logistic distribution of the logarithm of the limit, around the guess."""

        def survival(size: int) -> float:
            steps = math.log(size / self.guess) / math.log(max(self.step, self.ratio))
            return 1 / (1 + math.exp(min(steps, 500.0)))

        high = 1.0 if bracket.lower is None else survival(bracket.lower)
        low = 0.0 if bracket.upper is None else survival(bracket.upper)
        return (survival(size) - low) / (high - low) if high > low else 0.5


@dataclass(frozen=True)
class PaperSearch(Search):
    """The authors' search: bisection of a wide range whose ends are never tried.

    Args:
        low: assumed to be stored.
        high: assumed not to be stored.
        ratio: the search ends when upper/lower is at most this, or when they are adjacent.

    Raises:
        FactmemError: the ends are out of order.
    """

    low: int
    high: int
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.low < self.high:
            raise FactmemError(
                f"bisection needs 1 <= low < high, got low = {self.low} and high = {self.high}"
            )

    def _ends(self, bracket: Bracket) -> tuple[int, int]:
        return bracket.lower or self.low, bracket.upper or self.high

    def next(self, bracket: Bracket) -> int | None:
        """Return the next size to try, or None if the bracket is narrow enough."""
        lower, upper = self._ends(bracket)
        narrow = upper - lower <= 1 or upper / lower <= self.ratio
        return None if narrow else (lower + upper) // 2

    def status(self, bracket: Bracket) -> SearchStatus:
        """Return how a finished search ended."""
        if bracket.lower is None:
            return SearchStatus.UNTESTED
        return SearchStatus.ALL_STORED if bracket.upper is None else SearchStatus.BRACKETED

    def max_remaining(self, bracket: Bracket) -> int:
        """Estimate how many sizes are still to be tried."""
        lower, upper = self._ends(bracket)
        return _bisections(float(upper - lower), max(1.0, (self.ratio - 1) * lower))

    def probability_stored(self, bracket: Bracket, size: int) -> float:
        """Return 1/2: nothing is assumed about the limit."""
        return 0.5


def _bisections(width: float, target: float) -> int:
    return max(0, math.ceil(math.log2(width / target) - 1e-9)) if width > target else 0


@dataclass(frozen=True)
class SearchTrace:
    """The state of a search, given the known verdicts.

    Args:
        bracket: what it knows.
        sizes: the sizes that it tried, in order.
        next_size: the size whose verdict it waits for; None if it is finished.
    """

    bracket: Bracket
    sizes: tuple[int, ...]
    next_size: int | None


def trace_search(search: Search, verdict: Callable[[int], ProbeVerdict | None]) -> SearchTrace:
    """Follow a search as far as the verdicts are known.

    Args:
        search: the search.
        verdict: the verdict on a size; None if it is not known yet.
    """
    bracket, sizes = Bracket(), []
    while (size := search.next(bracket)) is not None and (known := verdict(size)) is not None:
        bracket = bracket.after(size, known)
        sizes.append(size)
    return SearchTrace(bracket, tuple(sizes), size)


def likely_sizes(search: Search, bracket: Bracket) -> Iterator[int]:
    """Yield the sizes that a search may try next, the most likely first, each once."""
    yielded: set[int] = set()
    order = count()  # breaks ties: first in, first out
    states = [(-1.0, next(order), bracket)]
    while states:
        weight, _, state = heapq.heappop(states)
        size = search.next(state)
        if size is None:
            continue
        if size not in yielded:
            yielded.add(size)
            yield size
        probability = search.probability_stored(state, size)
        for verdict, share in (
            (ProbeVerdict.STORED, probability),
            (ProbeVerdict.NOT_STORED, 1 - probability),
        ):
            heapq.heappush(states, (weight * share, next(order), state.after(size, verdict)))
