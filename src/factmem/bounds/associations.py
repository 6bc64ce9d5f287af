"""The minimum loss of a model of B bits on random associations, and the scaling law.

f*(x) is uniform on M answers, independently for N questions x with probabilities p(1) ≥ p(2) ≥ …
An encoder sees f* and writes B bits, from which a distribution over answers is read for every x.
The bits have information I_x ≤ log2 M about f*(x), with Σ_x I_x ≤ B, so

    E loss  ≥  min Σ_x p(x) (log2 M − I_x)  =  log2 M · p(all but the B / log2 M likeliest)

where one question may be covered in part.

Reference: Theorem 7 and its corollary.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from factmem._core.errors import FactmemError
from factmem._core.power_law import Number

__all__ = [
    "QuestionDistribution",
    "QuestionProbabilities",
    "Zipf",
    "bits_for_loss",
    "min_loss",
    "paper_min_loss",
    "scaling_law",
]

_SUMMED_TERMS = 10**5
"""Terms of a power sum that are added one by one; the others are integrated."""
_MAX_QUESTIONS = 10**18
_MAX_POWER = 1000.0


class QuestionDistribution(ABC):
    """Probabilities of questions, in decreasing order."""

    count: int
    """N, the number of questions."""

    @abstractmethod
    def tail(self, known: Number) -> float:
        """Return the probability of all but the `known` likeliest questions.

        Args:
            known: a number of questions; a fractional part counts as that part of one question.
        """


@dataclass(frozen=True)
class Zipf(QuestionDistribution):
    """Zipf's law: p(x) ∝ x^−power for x = 1 … count; power 0 is uniform.

    Raises:
        FactmemError: count or power is out of range.

    Examples:
        >>> round(Zipf(10**12, 1.5).tail(100), 4)
        0.0764
    """

    count: int
    power: Number = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MAX_QUESTIONS:
            raise FactmemError(f"count must be between 1 and 10^18, got {self.count}")
        if not 0 <= self.power <= _MAX_POWER:
            raise FactmemError(f"power must be between 0 and {_MAX_POWER:g}, got {self.power}")

    def tail(self, known: Number) -> float:
        """Return Σ_{x > known} p(x)."""
        whole, fraction = _split(known, self.count)
        if whole == self.count:
            return 0.0
        rest = _power_sum(whole + 1, self.count, self.power)
        return (rest - fraction * (whole + 1.0) ** -self.power) / self._total

    @property
    def _total(self) -> float:
        return _power_sum(1, self.count, self.power)


@dataclass(frozen=True, eq=False)
class QuestionProbabilities(QuestionDistribution):
    """Any probabilities, in any order.

    Raises:
        FactmemError: the array is empty, has negative entries, or does not sum to 1.
    """

    probabilities: np.ndarray

    def __post_init__(self) -> None:
        given = np.asarray(self.probabilities, np.float64)
        if given.ndim != 1 or not given.size or not (given >= 0).all():
            raise FactmemError(
                "probabilities must be a non-empty 1-d array of numbers ≥ 0, got an array of shape "
                f"{given.shape} with minimum {given.min(initial=np.inf):g}"
            )
        if not abs(given.sum() - 1) < 1e-6:
            raise FactmemError(f"probabilities must sum to 1, got a sum of {given.sum():g}")
        object.__setattr__(self, "probabilities", np.sort(given)[::-1])

    @property
    def count(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """N, the number of questions."""
        return len(self.probabilities)

    def tail(self, known: Number) -> float:
        """Return the sum of all but the `known` largest probabilities."""
        whole, fraction = _split(known, self.count)
        if whole == self.count:
            return 0.0
        return float(self.probabilities[whole:].sum() - fraction * self.probabilities[whole])


def min_loss(bits: Number, outputs: int, questions: QuestionDistribution) -> float:
    """Compute the minimum expected loss, in bits, of any model of B bits: the exact bound.

    Args:
        bits: B, the bits of the model.
        outputs: M, the number of possible answers.
        questions: the distribution of questions.

    Raises:
        FactmemError: bits is negative or infinite, or outputs is less than 1.

    Examples:
        >>> min_loss(50, 32, Zipf(100)), min_loss(500, 32, Zipf(100))
        (4.5, 0.0)
    """
    answer_bits = _answer_bits(bits, outputs)
    return answer_bits * questions.tail(bits / answer_bits) if answer_bits else 0.0


def paper_min_loss(bits: Number, outputs: int, questions: QuestionDistribution) -> float:
    """Compute the bound in the paper, log2 M · Σ_{x > ⌈B / log2 M⌉} p(x): at most `min_loss`."""
    answer_bits = _answer_bits(bits, outputs)
    if not answer_bits:
        return 0.0
    return answer_bits * questions.tail(float(math.ceil(bits / answer_bits)))


def bits_for_loss(loss: Number, outputs: int, questions: QuestionDistribution) -> float:
    """Compute the fewest bits that allow an expected loss (in bits); zero loss takes N log2 M.

    Raises:
        FactmemError: loss is negative, or outputs is less than 1.
    """
    answer_bits = _answer_bits(0, outputs)
    if not loss >= 0:
        raise FactmemError(f"loss must be at least 0, got {loss}")
    if loss >= answer_bits:
        return 0.0
    low, high = 0, questions.count  # bisection: the tail falls with the number of known questions
    while high - low > 1:
        middle = (low + high) // 2
        enough = answer_bits * questions.tail(middle) <= loss
        low, high = (low, middle) if enough else (middle, high)
    before, after = answer_bits * questions.tail(low), answer_bits * questions.tail(high)
    return answer_bits * (low + (before - loss) / (before - after) if before > after else high)


def scaling_law(bits: Number, outputs: int, questions: Zipf) -> float:
    """Compute the corollary's explicit bound on the loss, in bits, which falls like B^(1 − power).

    It bounds the tail by an integral: with k = ⌈B / log2 M⌉ and power α > 1,
    Σ_{x > k} x^−α ≥ ((k + 1)^(1−α) − (N + 1)^(1−α)) / (α − 1). It is at most `paper_min_loss`.

    Raises:
        FactmemError: the power is at most 1, where the law does not hold.
    """
    power = questions.power
    if power <= 1:
        raise FactmemError(f"the scaling law needs a power above 1, got {power:g}")
    answer_bits = _answer_bits(bits, outputs)
    known = math.ceil(bits / answer_bits) if answer_bits else questions.count
    if known >= questions.count:
        return 0.0
    # (k + 1)^(1−α) − (N + 1)^(1−α), without cancellation near α = 1
    factor = -math.expm1((1 - power) * math.log1p((questions.count - known) / (known + 1)))
    integral = (known + 1.0) ** (1 - power) * factor / (power - 1)
    return answer_bits * integral / _power_sum(1, questions.count, power)


def _answer_bits(bits: Number, outputs: int) -> float:
    """Return log2 M after checking the arguments."""
    if not 0 <= bits < math.inf:
        raise FactmemError(f"bits must be finite and at least 0, got {bits}")
    if outputs < 1:
        raise FactmemError(f"outputs must be at least 1, got {outputs}")
    return math.log2(outputs)


def _split(known: Number, count: int) -> tuple[int, float]:
    """Split a number of questions into whole questions and a fraction."""
    if known >= count:
        return count, 0.0
    return math.floor(known), float(known - math.floor(known))


def _power_sum(first: int, last: int, power: Number) -> float:
    """Compute Σ_{x = first}^{last} x^−power: small x one by one, the others by Euler–Maclaurin.

    From x = 10^5 on, the third-derivative term is negligible.
    """
    start = max(first, _SUMMED_TERMS)
    summed = math.fsum(np.arange(first, min(last + 1, start), dtype=np.float64) ** -power)
    if last < start:
        return summed
    ratio, at_start = math.log1p((last - start) / start), float(start) ** -power
    factor = ratio if power == 1 else math.expm1((1 - power) * ratio) / (1 - power)
    at_last = float(last) ** -power
    slopes = power * (at_start / start - at_last / last) / 12
    return summed + start * at_start * factor + (at_start + at_last) / 2 + slopes
