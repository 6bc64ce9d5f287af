"""Theorem 7: what no model of B bits can beat, and the law that follows for Zipf questions.

f*(x) is uniform on M answers, independently for N questions x, asked with chances p(1) ≥ p(2) ≥ …
Whoever saw f* writes B bits, from which a distribution over answers is read for every x. With
I_x ≤ log2 M the information that the bits have on f*(x), Σ_x I_x ≤ B, so that

    E loss  ≥  min Σ_x p(x) (log2 M − I_x)  =  log2 M · p(all but the B / log2 M likeliest)

where one question is covered in part.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from factmem._core.errors import FactmemError
from factmem._core.power_law import Number

__all__ = [
    "Chances",
    "QuestionLaw",
    "Zipf",
    "bits_for_loss",
    "least_loss",
    "printed_least_loss",
    "scaling_law",
]

_SUMMED = 10**5
"""Terms of a sum of powers that are added one by one; the others as an integral."""
_MOST_QUESTIONS = 10**18
_LARGEST_POWER = 1000.0


class QuestionLaw(ABC):
    """How likely questions are, the likeliest first."""

    count: int
    """N, how many there are."""

    @abstractmethod
    def tail(self, known: Number) -> float:
        """The chance of all but so many likeliest questions; part of one counts in part."""


@dataclass(frozen=True)
class Zipf(QuestionLaw):
    """p(x) ∝ x^−power for x = 1 … count; power 0 is uniform.

    Raises:
        FactmemError: no question, or more than 10^18; a power below 0, or above 1000.

    Examples:
        >>> round(Zipf(10**12, 1.5).tail(100), 4)
        0.0764
    """

    count: int
    power: Number = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST_QUESTIONS:
            raise FactmemError(f"there are from 1 to 10^18 questions, not {self.count}")
        if not 0 <= self.power <= _LARGEST_POWER:
            raise FactmemError(
                f"the power of Zipf's law is from 0 to {_LARGEST_POWER:g}, not {self.power}"
            )

    def tail(self, known: Number) -> float:
        """Σ_{x > known} p(x)."""
        whole, part = _whole_and_part(known, self.count)
        if whole == self.count:
            return 0.0
        beyond = _power_sum(whole + 1, self.count, self.power)
        return (beyond - part * (whole + 1.0) ** -self.power) / self._total

    @property
    def _total(self) -> float:
        return _power_sum(1, self.count, self.power)


@dataclass(frozen=True, eq=False)
class Chances(QuestionLaw):
    """Any chances, in any order.

    Raises:
        FactmemError: none, or numbers that are no chances.
    """

    chances: np.ndarray

    def __post_init__(self) -> None:
        given = np.asarray(self.chances, np.float64)
        if given.ndim != 1 or not given.size or not (given >= 0).all():
            raise FactmemError("chances are a list of numbers, none below 0")
        if not abs(given.sum() - 1) < 1e-6:
            raise FactmemError(f"chances sum to 1, not to {given.sum():g}")
        object.__setattr__(self, "chances", np.sort(given)[::-1])

    @property
    def count(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """N."""
        return len(self.chances)

    def tail(self, known: Number) -> float:
        """Σ p(x) over all but the likeliest."""
        whole, part = _whole_and_part(known, self.count)
        if whole == self.count:
            return 0.0
        return float(self.chances[whole:].sum() - part * self.chances[whole])


def least_loss(bits: Number, outputs: int, questions: QuestionLaw) -> float:
    """The least expected loss, in bits, of any model of B bits: the bound of Theorem 7, exactly.

    Args:
        bits: B.
        outputs: M.
        questions: their chances.

    Raises:
        FactmemError: bits below 0, or no output.

    Examples:
        >>> least_loss(50, 32, Zipf(100)), least_loss(500, 32, Zipf(100))
        (4.5, 0.0)
    """
    each = _answer_bits(bits, outputs)
    return each * questions.tail(bits / each) if each else 0.0


def printed_least_loss(bits: Number, outputs: int, questions: QuestionLaw) -> float:
    """log2 M · Σ_{x > ⌈B / log2 M⌉} p(x), as the theorem is printed: never above `least_loss`."""
    each = _answer_bits(bits, outputs)
    return each * questions.tail(float(math.ceil(bits / each))) if each else 0.0


def bits_for_loss(loss: Number, outputs: int, questions: QuestionLaw) -> float:
    """The fewest bits with which an expected loss (in bits) is possible; 0 loss takes N log2 M.

    Raises:
        FactmemError: a loss below 0, or no output.
    """
    each = _answer_bits(0, outputs)
    if not loss >= 0:
        raise FactmemError(f"a loss is at least 0, not {loss}")
    if loss >= each:
        return 0.0
    low, high = 0, questions.count  # the tail falls with the number of questions that are known
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if each * questions.tail(middle) <= loss else (middle, high)
    before, after = each * questions.tail(low), each * questions.tail(high)
    return each * (low + (before - loss) / (before - after) if before > after else high)


def scaling_law(bits: Number, outputs: int, questions: Zipf) -> float:
    """The corollary: an explicit bound on the loss, in bits, that falls like B^(1 − power).

    The tail of the printed bound as an integral: with k = ⌈B / log2 M⌉ and power α > 1,
    Σ_{x > k} x^−α ≥ ((k + 1)^(1−α) − (N + 1)^(1−α)) / (α − 1). Below `printed_least_loss`.

    Raises:
        FactmemError: a power of 1 or less, where there is no such law.
    """
    power = questions.power
    if power <= 1:
        raise FactmemError(f"the scaling law needs a power above 1, not {power:g}")
    each = _answer_bits(bits, outputs)
    known = math.ceil(bits / each) if each else questions.count
    if known >= questions.count:
        return 0.0
    # (k + 1)^(1−α) − (N + 1)^(1−α), without the difference of two equals near α = 1
    stretch = -math.expm1((1 - power) * math.log1p((questions.count - known) / (known + 1)))
    ends = (known + 1.0) ** (1 - power) * stretch / (power - 1)
    return each * ends / _power_sum(1, questions.count, power)


def _answer_bits(bits: Number, outputs: int) -> float:
    """log2 M, if the sizes are some."""
    if not 0 <= bits < math.inf:
        raise FactmemError(f"a model has a number of bits from 0, not {bits}")
    if outputs < 1:
        raise FactmemError(f"there is at least one output, not {outputs}")
    return math.log2(outputs)


def _whole_and_part(known: Number, count: int) -> tuple[int, float]:
    if known >= count:
        return count, 0.0
    return math.floor(known), float(known - math.floor(known))


def _power_sum(first: int, last: int, power: Number) -> float:
    """Σ_{x = first}^{last} x^−power: the first terms one by one, the others by Euler–Maclaurin.

    Terms of 10^5 and more are so smooth that its third derivative no longer counts.
    """
    start = max(first, _SUMMED)
    added = math.fsum(np.arange(first, min(last + 1, start), dtype=np.float64) ** -power)
    if last < start:
        return added
    ratio, at_start = math.log1p((last - start) / start), float(start) ** -power
    stretch = ratio if power == 1 else math.expm1((1 - power) * ratio) / (1 - power)
    at_last = float(last) ** -power
    slopes = power * (at_start / start - at_last / last) / 12
    return added + start * at_start * stretch + (at_start + at_last) / 2 + slopes
