"""The bits of a table of facts, which every lossless model must store.

Each relation has a set of D answers; the sets are disjoint and drawn from a vocabulary V. The
answer to every question is drawn from its relation's set. The entropies are

    answer sets     log2 |V|! / (D!^R (|V| − RD)!)
    associations    S R log2 D

A table determines both, except for the answers that do not occur. So a lossless model has at least
H(table) = associations + answer sets − E[unseen] bits. If u_r answers of relation r are unseen, and
U = Σ u_r in all,

    unseen          log2 (|V| − RD + U)! / (Π u_r! (|V| − RD)!)

Reference: Theorem 8.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammaln, polygamma

from factmem._core.errors import ArgumentError, FactmemError
from factmem.bounds.occupancy import (
    log_probability_all_seen,
    unseen_distribution,
    unseen_mean,
    unseen_variance,
)
from factmem.facts.table import FactTable

__all__ = [
    "BITS_PER_WEIGHT",
    "MAX_FACTS",
    "RandomTableConditions",
    "TableBits",
    "parameters_needed",
    "random_table_bits",
    "table_bits",
]

BITS_PER_WEIGHT = (1, 2, 4, 8, 16, 32)
MAX_FACTS = 10**15
"""The largest number of facts, and of words: up to here sums of counts are exact in float64."""

_LN2 = math.log(2)
_MAX_DEVIATION = 1e4
"""The largest standard deviation of a count whose distribution is computed. Beyond it, functions of
the count are expanded around its mean, with an error far below 1e-9 of all bits."""
_MAX_CONVOLUTION = 2**22


@dataclass(frozen=True)
class TableBits:
    """The bits of a table, or the mean over random tables.

    Args:
        association_bits: the bits that tell which of its relation's answers every fact has.
        answer_set_bits: the bits that tell which answers each relation has.
        unused_answer_bits: the part of `answer_set_bits` about answers that no fact has.
    """

    association_bits: float
    answer_set_bits: float
    unused_answer_bits: float

    @property
    def bits(self) -> float:
        """The bits that every lossless model stores."""
        return self.association_bits + self.answer_set_bits - self.unused_answer_bits


@dataclass(frozen=True)
class RandomTableConditions:
    """The theorem's conditions on the sizes, and the bound in the paper, without its constants."""

    vocabulary_needed: int
    """2RD, the smallest vocabulary that the theorem allows."""
    subjects_scale: float
    """D ln(2D² ln |V|); the theorem requires S to be at least a constant times this."""
    paper_bits: float
    """S R log2 D + R D log2(|V|/D); in the theorem the second term has a constant below 1."""

    @classmethod
    def from_sizes(
        cls, subjects: int, relations: int, answers: int, vocabulary: int
    ) -> "RandomTableConditions":
        """Return the conditions for S, R, D and |V|."""
        set_bits = relations * answers * math.log2(vocabulary / answers)
        inner = 2 * answers**2 * math.log(vocabulary)
        return cls(
            2 * relations * answers,
            answers * math.log(inner) if inner > 1 else 0.0,
            subjects * relations * math.log2(answers) + set_bits,
        )


def random_table_bits(subjects: int, relations: int, answers: int, vocabulary: int) -> TableBits:
    """Compute the entropy of a random table: exact, up to rounding, for S·R up to 10^15.

    Args:
        subjects: S.
        relations: R.
        answers: D, the number of answers of each relation.
        vocabulary: |V|, the number of words that could be answers.

    Raises:
        FactmemError: a size is out of range, or the vocabulary has fewer than R·D words.

    Examples:
        >>> table = random_table_bits(32, 32, 8, 512)
        >>> table.association_bits, round(table.answer_set_bits, 1), round(table.bits, 1)
        (3072.0, 1701.6, 4745.1)
    """
    _check_sizes(subjects=subjects, relations=relations, answers=answers, vocabulary=vocabulary)
    if max(subjects * relations, vocabulary) > MAX_FACTS:
        raise FactmemError(
            f"facts and vocabulary must be at most {MAX_FACTS:.0e}, got {subjects * relations} "
            f"facts and a vocabulary of {vocabulary}"
        )
    spare = vocabulary - relations * answers
    if spare < 0:
        raise ArgumentError(
            "vocabulary",
            f"must be at least {relations * answers} for {relations} relations with "
            f"{answers} answers each, got {vocabulary}",
        )
    return TableBits(
        subjects * relations * math.log2(answers),
        _log2_set_choices(np.full(1, float(answers)), np.full(1, float(relations)), vocabulary),
        _unseen_bits(subjects, relations, answers, float(spare)),
    )


def table_bits(table: FactTable, vocabulary: int | None = None) -> TableBits:
    """Compute the bits that tell a table from all others of its shape.

    These are the tables that answer the same questions, with the same number of different answers
    for each relation, disjoint if those of this table are; `bits` is log2 of their number.

    Args:
        table: the facts.
        vocabulary: |V|, the number of words that could be answers; None for the table's answers.

    Raises:
        FactmemError: the vocabulary is smaller than the number of the table's answers.
    """
    set_sizes = table.answers_by_relation[table.answers_by_relation > 0]
    facts = table.facts_by_relation[table.facts_by_relation > 0]
    used = int((table.answer_counts > 0).sum())
    vocabulary = table.answers if vocabulary is None else vocabulary
    if vocabulary < used:
        raise ArgumentError(
            "vocabulary", f"must be at least the table's {used} answers, got {vocabulary}"
        )
    if table.disjoint:
        set_bits = _log2_set_choices(set_sizes.astype(float), np.ones(len(set_sizes)), vocabulary)
    else:
        set_bits = sum(
            _log2_set_choices(np.full(1, float(size)), np.ones(1), vocabulary) for size in set_sizes
        )
    log_all_seen = [
        log_probability_all_seen(int(n), np.array([float(k)]))[0]
        for n, k in zip(facts, set_sizes, strict=True)
    ]
    return TableBits(table.association_bits, float(set_bits), abs(sum(log_all_seen)) / _LN2)


def parameters_needed(bits: float) -> dict[int, int]:
    """Return how many weights of 1, 2, 4, 8, 16 and 32 bits are needed to store `bits` bits."""
    return {weight_bits: math.ceil(bits / weight_bits) for weight_bits in BITS_PER_WEIGHT}


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise FactmemError(f"{name} must be at least 1, got {size}")


def _log2_set_choices(set_sizes: np.ndarray, counts: np.ndarray, vocabulary: int) -> float:
    """Compute log2 of the number of ways to give each relation its own set of answers."""
    used = float(set_sizes @ counts)
    ways = _log_rising(vocabulary - used, used) - float(gammaln(set_sizes + 1.0) @ counts)
    return max(0.0, float(ways) / _LN2)


def _log_rising(base: float, more: np.ndarray | float) -> np.ndarray:
    """Compute ln (base + more)!/base! without cancellation."""
    at_least_1 = np.maximum(more, 1.0)
    logs = gammaln(at_least_1) - betaln(base + 1.0, at_least_1)
    # Between 0 and 1 the first term is infinite.
    return np.where(np.asarray(more) < 1, gammaln(base + more + 1.0) - gammaln(base + 1.0), logs)


def _unseen_bits(subjects: int, relations: int, answers: int, spare: float) -> float:
    """Compute E log2 (spare + U)!/spare! − R E log2 u!.

    u is the number of unseen answers of one relation, and U that of all relations.
    """
    deviation = math.sqrt(unseen_variance(subjects, answers))
    if deviation > _MAX_DEVIATION:
        mean, variance = unseen_mean(subjects, answers), deviation**2
        own = float(gammaln(mean + 1)) + float(polygamma(1, mean + 1)) * variance / 2
        shared = _mean_log_rising(spare, relations * mean, relations * variance)
        return (shared - relations * own) / _LN2
    first, probabilities = unseen_distribution(subjects, answers)
    unseen = first + np.arange(len(probabilities), dtype=np.float64)
    own = float(gammaln(unseen + 1) @ probabilities)
    mean = float(unseen @ probabilities)
    if relations * len(probabilities) > _MAX_CONVOLUTION:
        variance = float((unseen - mean) ** 2 @ probabilities)
        shared = _mean_log_rising(spare, relations * mean, relations * variance)
    else:
        of_sum = _distribution_of_sum(probabilities, relations)
        total_unseen = relations * first + np.arange(len(of_sum), dtype=np.float64)
        shared = float(_log_rising(spare, total_unseen) @ of_sum)
    return max(0.0, (shared - relations * own) / _LN2)


def _mean_log_rising(base: float, mean: float, variance: float) -> float:
    """Compute E ln (base + U)!/base!, to second order around the mean of U."""
    curvature = float(polygamma(1, base + mean + 1))
    return float(_log_rising(base, mean)) + curvature * variance / 2


def _distribution_of_sum(probabilities: np.ndarray, count: int) -> np.ndarray:
    """Compute the distribution of the sum of `count` independent numbers, by FFT."""
    length = count * (len(probabilities) - 1) + 1
    if length == 1:
        return np.ones(1)
    of_sum = np.fft.irfft(np.fft.rfft(probabilities, length) ** count, length)
    # Smaller values are rounding errors, which grow with the number of relations.
    return np.where(of_sum > 1e-15 * count, of_sum, 0.0)
