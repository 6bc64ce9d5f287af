"""Theorem 8: the bits of a table of facts, which every model without loss must hold.

The relations' sets of D answers, disjoint and drawn from a vocabulary V, and the answer of every
question, drawn from its relation's set, have the entropies

    answer sets     log2 |V|! / (D!^R (|V| − RD)!)
    associations    S R log2 D

and a table tells both but for what its sets hold beyond the answers that occur. So a model without
loss has at least H(table) = associations + answer sets − E[unseen] bits, where with u_r answers of
relation r unseen, U = Σ u_r in all,

    unseen          log2 (|V| − RD + U)! / (Π u_r! (|V| − RD)!)
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammaln, polygamma

from factmem._core.errors import FactmemError
from factmem.bounds.occupancy import (
    log_all_seen,
    unseen_chances,
    unseen_mean,
    unseen_variance,
)
from factmem.facts.table import FactTable

__all__ = [
    "BITS_PER_WEIGHT",
    "MOST",
    "Conditions",
    "TableBits",
    "parameters_needed",
    "random_table_bits",
    "table_bits",
]

BITS_PER_WEIGHT = (1, 2, 4, 8, 16, 32)
MOST = 10**15
"""Facts, and words of a vocabulary: all sums of counts are exact up to here."""

_LN2 = math.log(2)
_WIDEST = 1e4
"""Standard deviations of a count up to which its distribution is written down; beyond, functions of
it are expanded around its mean, with an error far below 1e-9 of all bits."""
_LONGEST_CONVOLUTION = 2**22


@dataclass(frozen=True)
class TableBits:
    """The bits of a table, or of a random one on average.

    Args:
        association_bits: to say which of its relation's answers every fact has.
        answer_set_bits: to say which answers each relation has.
        unseen_bits: of these, what no fact depends on.
    """

    association_bits: float
    answer_set_bits: float
    unseen_bits: float

    @property
    def bits(self) -> float:
        """What every model without loss holds."""
        return self.association_bits + self.answer_set_bits - self.unseen_bits


@dataclass(frozen=True)
class Conditions:
    """What Theorem 8 asks of sizes, and the bound as it is printed, with its constants left out."""

    vocabulary_needed: int
    """2RD."""
    subjects_scale: float
    """D ln(2D² ln |V|); S is to be a constant times as large."""
    printed_bits: float
    """S R log2 D + R D log2(|V|/D); the theorem has a constant below 1 before the second term."""

    @classmethod
    def of(cls, subjects: int, relations: int, answers: int, vocabulary: int) -> "Conditions":
        """Those of given sizes."""
        sets = relations * answers * math.log2(vocabulary / answers)
        inner = 2 * answers**2 * math.log(vocabulary)
        return cls(
            2 * relations * answers,
            answers * math.log(inner) if inner > 1 else 0.0,
            subjects * relations * math.log2(answers) + sets,
        )


def random_table_bits(subjects: int, relations: int, answers: int, vocabulary: int) -> TableBits:
    """The entropy of a random table: exact, up to the rounding of its parts, to S·R = 10^15.

    Args:
        subjects, relations, answers: S, R and D.
        vocabulary: |V|, of which each relation has D answers of its own.

    Raises:
        FactmemError: a size below 1, a vocabulary of fewer than R·D, or more than `MOST`.

    Examples:
        >>> found = random_table_bits(32, 32, 8, 512)
        >>> found.association_bits, round(found.answer_set_bits, 1), round(found.bits, 1)
        (3072.0, 1701.6, 4745.1)
    """
    _check(subjects=subjects, relations=relations, answers=answers, vocabulary=vocabulary)
    if max(subjects * relations, vocabulary) > MOST:
        raise FactmemError(f"tables have up to {MOST:.0e} facts, and as many words")
    spare = vocabulary - relations * answers
    if spare < 0:
        raise FactmemError(
            f"{relations} relations with {answers} answers each need a vocabulary of at least "
            f"{relations * answers}, not {vocabulary}"
        )
    return TableBits(
        subjects * relations * math.log2(answers),
        _log2_sets(np.full(1, float(answers)), np.full(1, float(relations)), vocabulary),
        _unseen_bits(subjects, relations, answers, float(spare)),
    )


def table_bits(table: FactTable, vocabulary: int | None = None) -> TableBits:
    """The bits that tell one table from all others of its shape.

    These are the tables with answers to the same questions, in which every relation has as many
    different answers, disjoint ones if they are here; log2 of their number is `bits`.

    Args:
        table: the facts.
        vocabulary: |V|, the words that might have been answers; the answers of the table if left
            out.

    Raises:
        FactmemError: a vocabulary of fewer words than the table has answers.
    """
    sizes = table.answers_of_relations[table.answers_of_relations > 0]
    facts = table.facts_of_relations[table.facts_of_relations > 0]
    used = int((table.answer_counts > 0).sum())
    vocabulary = table.answers if vocabulary is None else vocabulary
    if vocabulary < used:
        raise FactmemError(f"the table has {used} answers: more than a vocabulary of {vocabulary}")
    if table.disjoint:
        sets = _log2_sets(sizes.astype(float), np.ones(len(sizes)), vocabulary)
    else:
        each = (_log2_sets(np.full(1, float(size)), np.ones(1), vocabulary) for size in sizes)
        sets = sum(each)
    seen = [
        log_all_seen(int(n), np.array([float(k)]))[0] for n, k in zip(facts, sizes, strict=True)
    ]
    return TableBits(table.association_bits, float(sets), abs(sum(seen)) / _LN2)


def parameters_needed(bits: float) -> dict[int, int]:
    """How many weights hold so many bits, for weights of 1, 2, 4, 8, 16 and 32 bits."""
    return {each: math.ceil(bits / each) for each in BITS_PER_WEIGHT}


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise FactmemError(f"{name} is at least 1, not {size}")


def _log2_sets(sizes: np.ndarray, counts: np.ndarray, vocabulary: int) -> float:
    """log2 of the ways to give each relation its set, no answer to two of them."""
    taken = float(sizes @ counts)
    ways = _log_rising(vocabulary - taken, taken) - float(gammaln(sizes + 1.0) @ counts)
    return max(0.0, float(ways) / _LN2)


def _log_rising(base: float, more: np.ndarray | float) -> np.ndarray:
    """ln (base + more)!/base!, without the difference of two large numbers."""
    some = np.maximum(more, 1.0)
    whole = gammaln(some) - betaln(base + 1.0, some)
    # between 0 and 1 the first of these terms is infinite
    return np.where(np.asarray(more) < 1, gammaln(base + more + 1.0) - gammaln(base + 1.0), whole)


def _unseen_bits(subjects: int, relations: int, answers: int, spare: float) -> float:
    """E log2 (spare + U)!/spare! − R E log2 u!, u of a relation and U of all of them."""
    deviation = math.sqrt(unseen_variance(subjects, answers))
    if deviation > _WIDEST:
        mean, variance = unseen_mean(subjects, answers), deviation**2
        own = float(gammaln(mean + 1)) + float(polygamma(1, mean + 1)) * variance / 2
        return (
            _rising_near(spare, relations * mean, relations * variance) - relations * own
        ) / _LN2
    first, chances = unseen_chances(subjects, answers)
    unseen = first + np.arange(len(chances), dtype=np.float64)
    own = float(gammaln(unseen + 1) @ chances)
    mean = float(unseen @ chances)
    if relations * len(chances) > _LONGEST_CONVOLUTION:
        variance = float((unseen - mean) ** 2 @ chances)
        shared = _rising_near(spare, relations * mean, relations * variance)
    else:
        together = _repeated(chances, relations)
        places = relations * first + np.arange(len(together), dtype=np.float64)
        shared = float(_log_rising(spare, places) @ together)
    return max(0.0, (shared - relations * own) / _LN2)


def _rising_near(base: float, mean: float, variance: float) -> float:
    """E ln (base + U)!/base!, to second order around the mean of U."""
    curvature = float(polygamma(1, base + mean + 1))
    return float(_log_rising(base, mean)) + curvature * variance / 2


def _repeated(chances: np.ndarray, times: int) -> np.ndarray:
    """The distribution of a sum of so many independent numbers."""
    length = times * (len(chances) - 1) + 1
    if length == 1:
        return np.ones(1)
    found = np.fft.irfft(np.fft.rfft(chances, length) ** times, length)
    # Below this all is rounding, which many relations multiply.
    return np.where(found > 1e-15 * times, found, 0.0)
