"""The largest size that is stored: a search as a pure state machine.

All that a search knows is its bracket. From that alone follows the size to try next, so a search
that was interrupted goes on from the verdicts that are known, and what is tried besides, on cores
that have nothing to do, changes nothing.

The assumption is that success falls with size: what is too large stays too large. Where verdicts
contradict it (training has warm_start_ratio), the bracket is one place where stored meets not stored.
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count

from factmem._core.errors import FactmemError

__all__ = [
    "Bracket",
    "FastSearch",
    "Outcome",
    "PaperSearch",
    "Search",
    "SearchTrace",
    "Verdict",
    "ahead",
    "trace_search",
]


class Verdict(Enum):
    """Whether a size is stored."""

    STORED = "stored"
    NOT_STORED = "not stored"
    UNDECIDED = "undecided"
    """Neither was found out: taken as not stored, and named as undecided."""


class Outcome(Enum):
    """How a search ended, as a sentence."""

    FOUND = "The largest size that is stored lies in the bracket."
    ALL_STORED = "Even the largest size that may be tried is stored."
    NONE_STORED = "Not even the smallest size that may be tried is stored."
    UNTESTED = "Nothing that was tried is stored; the lower end of the bracket was never tried."


@dataclass(frozen=True)
class Bracket:
    """What a search knows.

    Args:
        lower: the largest size that is stored, as far as is known; None if none is.
        upper: the smallest size above it that is not stored; None if none is known.
        undecided: whether nothing but the lack of a verdict speaks against `upper`.
    """

    lower: int | None = None
    upper: int | None = None
    undecided: bool = False

    def after(self, size: int, verdict: Verdict) -> "Bracket":
        """The bracket once this is known of a size inside it."""
        if verdict is Verdict.STORED:
            return replace(self, lower=size)
        return replace(self, upper=size, undecided=verdict is Verdict.UNDECIDED)


class Search(ABC):
    """Which size to try next."""

    @abstractmethod
    def next(self, bracket: Bracket) -> int | None:
        """The size to try, or None when the bracket is narrow enough."""

    @abstractmethod
    def outcome(self, bracket: Bracket) -> Outcome:
        """How a search that is over ended."""

    @abstractmethod
    def most_left(self, bracket: Bracket) -> int:
        """About how many sizes will be tried yet, at most, if no more expansion is needed."""

    @abstractmethod
    def chance(self, bracket: Bracket, size: int) -> float:
        """How likely it is that a size inside the bracket is stored: only for looking ahead."""


@dataclass(frozen=True)
class FastSearch(Search):
    """From a good guess outwards in growing steps, then the geometric mean of both ends.

    With a first step σ, a guess g and nothing but successes, the sizes are g, gσ, gσ², gσ⁴, gσ⁸, …:
    the logarithm's distance from the guess doubles. They shrink alike downwards. A guess that is
    right costs two tries, one that is wrong by σ three, one that is wrong by a factor f about
    log₂(log f / log σ) more to find the other end, and as many to bisect what lies between.

    Args:
        guess: the size to begin with.
        ratio: it is over when upper/lower is at most this, or when they are neighbors.
        step: σ, about as much as the guess may be wrong; the ratio if that is larger.
        least: the smallest size that may be tried.
        most: the largest.

    Raises:
        FactmemError: a ratio of 1 or less, or sizes that are out of order.
    """

    guess: int
    ratio: float = 1.05
    step: float = 1.0
    least: int = 1
    most: int = 2**30

    def __post_init__(self) -> None:
        if not 1 < self.ratio < math.inf:
            raise FactmemError(f"a bracket's ratio is above 1, not {self.ratio}")
        if not 1 <= self.least <= self.guess <= self.most:
            raise FactmemError(
                f"a search begins between its least and its most, {self.least} and {self.most}, "
                f"not with {self.guess}"
            )

    def next(self, bracket: Bracket) -> int | None:
        """The size to try, or None when the bracket is narrow enough."""
        lower, upper = bracket.lower, bracket.upper
        if lower is None and upper is None:
            return self.guess
        if upper is None:
            assert lower is not None
            above = int(lower * max(lower / self.guess, self.step, self.ratio))
            return min(self.most, max(lower + 1, above)) if lower < self.most else None
        if lower is None:
            below = math.ceil(upper / max(self.guess / upper, self.step, self.ratio))
            return max(self.least, min(upper - 1, below)) if upper > self.least else None
        if upper <= max(lower + 1, lower * self.ratio):
            return None
        return min(upper - 1, max(lower + 1, round(math.sqrt(lower * upper))))

    def outcome(self, bracket: Bracket) -> Outcome:
        """How a search that is over ended."""
        if bracket.upper is None:
            return Outcome.ALL_STORED
        return Outcome.NONE_STORED if bracket.lower is None else Outcome.FOUND

    def most_left(self, bracket: Bracket) -> int:
        """About how many sizes will be tried yet, at most, if no more expansion is needed."""
        lower, upper = bracket.lower, bracket.upper
        if lower is None or upper is None:
            return 2
        return _halvings(math.log(upper / lower), math.log(max(self.ratio, 1 + 1 / lower)))

    def chance(self, bracket: Bracket, size: int) -> float:
        """As if the logarithm of the limit had a logistic distribution around the guess."""

        def above(size: int) -> float:
            steps = math.log(size / self.guess) / math.log(max(self.step, self.ratio))
            return 1 / (1 + math.exp(min(steps, 500.0)))

        most = 1.0 if bracket.lower is None else above(bracket.lower)
        least = 0.0 if bracket.upper is None else above(bracket.upper)
        return (above(size) - least) / (most - least) if most > least else 0.5


@dataclass(frozen=True)
class PaperSearch(Search):
    """The authors' own: bisection of a wide range whose ends are never tried.

    Args:
        low: taken as stored.
        high: taken as not stored.
        ratio: it is over when upper/lower is at most this, or when they are neighbors.

    Raises:
        FactmemError: ends that are out of order.
    """

    low: int
    high: int
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.low < self.high:
            raise FactmemError(
                f"a bisection begins with a low end below its high end, not {self.low} and "
                f"{self.high}"
            )

    def _ends(self, bracket: Bracket) -> tuple[int, int]:
        return bracket.lower or self.low, bracket.upper or self.high

    def next(self, bracket: Bracket) -> int | None:
        """The size to try, or None when the bracket is narrow enough."""
        lower, upper = self._ends(bracket)
        narrow = upper - lower <= 1 or upper / lower <= self.ratio
        return None if narrow else (lower + upper) // 2

    def outcome(self, bracket: Bracket) -> Outcome:
        """How a search that is over ended."""
        if bracket.lower is None:
            return Outcome.UNTESTED
        return Outcome.ALL_STORED if bracket.upper is None else Outcome.FOUND

    def most_left(self, bracket: Bracket) -> int:
        """About how many sizes will be tried yet, at most."""
        lower, upper = self._ends(bracket)
        return _halvings(float(upper - lower), max(1.0, (self.ratio - 1) * lower))

    def chance(self, bracket: Bracket, size: int) -> float:
        """Nothing is known."""
        return 0.5


def _halvings(width: float, enough: float) -> int:
    return max(0, math.ceil(math.log2(width / enough) - 1e-9)) if width > enough else 0


@dataclass(frozen=True)
class SearchTrace:
    """Where a search is.

    Args:
        bracket: what it knows.
        sizes: those that it tried, in their order.
        next_size: the size whose verdict it waits for; None if it is over.
    """

    bracket: Bracket
    sizes: tuple[int, ...]
    next_size: int | None


def trace_search(search: Search, verdict: Callable[[int], Verdict | None]) -> SearchTrace:
    """Where a search is that asks for these verdicts, None where one is not known yet."""
    bracket, sizes = Bracket(), []
    while (size := search.next(bracket)) is not None and (found := verdict(size)) is not None:
        bracket = bracket.after(size, found)
        sizes.append(size)
    return SearchTrace(bracket, tuple(sizes), size)


def ahead(search: Search, bracket: Bracket) -> Iterator[int]:
    """The sizes that a search may ask for next, the likeliest first, each once."""
    seen: set[int] = set()
    order = count()  # of equally likely ones the first that was found
    states = [(-1.0, next(order), bracket)]
    while states:
        likely, _, state = heapq.heappop(states)
        size = search.next(state)
        if size is None:
            continue
        if size not in seen:
            seen.add(size)
            yield size
        chance = search.chance(state, size)
        for verdict, share in ((Verdict.STORED, chance), (Verdict.NOT_STORED, 1 - chance)):
            heapq.heappush(states, (likely * share, next(order), state.after(size, verdict)))
