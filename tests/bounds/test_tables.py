"""The bits of tables, against enumerations of all small tables."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.bounds import parameters_needed, random_table_bits, table_bits
from factmem.bounds.tables import RandomTableConditions
from factmem.facts import FactTable

SIZES = [
    (1, 1, 1, 1),
    (1, 1, 2, 2),
    (4, 1, 2, 5),
    (8, 1, 2, 5),
    (3, 1, 3, 6),
    (2, 2, 2, 4),
    (2, 2, 2, 6),
    (3, 2, 2, 5),
    (1, 3, 2, 7),
    (2, 3, 1, 5),
]


def answer_sets(relations, answers, vocabulary):
    """List all ways to give each relation its own set of answers."""
    words = set(range(vocabulary))

    def rest(left, count):
        if count == 0:
            yield ()
            return
        for own in itertools.combinations(sorted(left), answers):
            for others in rest(left - set(own), count - 1):
                yield own, *others

    return list(rest(words, relations))


def table_probabilities(subjects, relations, answers, vocabulary):
    """Return the number of answer sets, and the probability of every table."""
    sets = answer_sets(relations, answers, vocabulary)
    increment = Fraction(1, len(sets) * answers ** (subjects * relations))
    probabilities = Counter()
    for those in sets:
        columns = [itertools.product(own, repeat=subjects) for own in those]
        for table in itertools.product(*columns):
            probabilities[table] += increment
    return len(sets), probabilities


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_entropy_matches_enumeration(sizes):
    sets, probabilities = table_probabilities(*sizes)
    assert sum(probabilities.values()) == 1
    entropy = -sum(float(p) * math.log2(p) for p in probabilities.values())
    table = random_table_bits(*sizes)
    assert table.bits == pytest.approx(entropy, abs=1e-9)
    assert table.answer_set_bits == pytest.approx(math.log2(sets), abs=1e-9)
    assert table.association_bits == pytest.approx(
        sizes[0] * sizes[1] * math.log2(sizes[2]), abs=1e-9
    )
    assert table.unused_answer_bits >= 0


def test_example_of_32_subjects_and_relations():
    table = random_table_bits(32, 32, 8, 512)
    assert table.association_bits == 3072
    assert table.answer_set_bits == pytest.approx(1701.6, abs=0.05)
    assert table.unused_answer_bits == pytest.approx(28.5, abs=0.05)
    assert table.bits == pytest.approx(4745.1, abs=0.05)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20), st.integers(0, 500))
def test_bits_are_within_simple_bounds(subjects, relations, answers, spare):
    table = random_table_bits(subjects, relations, answers, relations * answers + spare)
    assert 0 <= table.unused_answer_bits <= table.answer_set_bits + 1e-9
    # At least the entropy given the sets, and at most that of |V|^SR equally likely tables.
    assert table.bits >= table.association_bits - 1e-9
    maximum = subjects * relations * math.log2(relations * answers + spare)
    assert table.bits <= maximum + 1e-9 * max(1.0, maximum)


def test_one_subject_is_a_list_of_distinct_words():
    table = random_table_bits(1, 10**12, 3, 10**13)
    # |V|! / (|V| − R)!, by Stirling's formula
    words, count = 1e13, 1e12
    nats = words * math.log(words) - (words - count) * math.log(words - count) - count
    assert table.bits == pytest.approx(nats / math.log(2), rel=1e-11)


@pytest.mark.parametrize(
    "sizes",
    [
        (10**6, 10**6, 8, 10**8),
        (10**12, 1, 10**6, 10**7),
        (10**6, 10**6, 10**5, 10**12),
        (10**12, 1, 10**12, 10**13),
    ],
    ids=str,
)
def test_very_large_tables(sizes):
    table = random_table_bits(*sizes)
    assert math.isfinite(table.bits)
    assert table.association_bits <= table.bits <= table.association_bits + table.answer_set_bits


@pytest.mark.parametrize("relations", [1, 7, 400])
def test_expansions_match_distributions(monkeypatch, relations):
    sizes = (30_000, relations, 20_000, 20_000 * relations + 50)
    exact = random_table_bits(*sizes).unused_answer_bits
    monkeypatch.setattr("factmem.bounds.tables._MAX_DEVIATION", 10.0)
    assert random_table_bits(*sizes).unused_answer_bits == pytest.approx(exact, rel=1e-6)
    monkeypatch.setattr("factmem.bounds.tables._MAX_DEVIATION", 1e4)
    monkeypatch.setattr("factmem.bounds.tables._MAX_CONVOLUTION", 1)
    assert random_table_bits(*sizes).unused_answer_bits == pytest.approx(exact, rel=1e-6)


def shape_of(grid):
    """Return the numbers of answers of the relations, and whether the sets are disjoint."""
    columns = [set(column) - {-1} for column in zip(*grid, strict=True)]
    disjoint = sum(map(len, columns)) == len(set().union(*columns))
    return tuple(map(len, columns)), disjoint


@pytest.mark.parametrize("vocabulary", [4, 5])
def test_bits_of_a_table_count_the_tables_of_its_shape(vocabulary):
    grids = [
        np.reshape(answers, (3, 2)).tolist()
        for answers in itertools.product(range(vocabulary), repeat=6)
    ]
    shapes = Counter(map(shape_of, grids))
    sizes = Counter(shape for (shape, _) in map(shape_of, grids))
    for grid in grids[:: len(grids) // 97]:
        shape, disjoint = shape_of(grid)
        table = table_bits(FactTable(np.array(grid)), vocabulary)
        # If answers are shared, all sets count, disjoint ones included.
        count = shapes[shape, True] if disjoint else sizes[shape]
        assert table.bits == pytest.approx(math.log2(count), abs=1e-9)


def test_missing_facts_have_no_bits():
    grid = np.array([[0, -1], [1, 2], [-1, 3]])
    table = table_bits(FactTable(grid), 6)
    count = 6 * 5 // 2 * 2 * (4 * 3 // 2 * 2)  # two answers each, both seen
    assert table.bits == pytest.approx(math.log2(count), abs=1e-9)


def test_random_tables_have_about_the_mean_bits():
    bits = [table_bits(FactTable.random(32, 32, 8, seed=s), 512).bits for s in range(5)]
    assert np.mean(bits) == pytest.approx(random_table_bits(32, 32, 8, 512).bits, rel=0.01)


def test_rarely_unseen_answers():
    # One relation in 200,000 has an unseen answer, which could be any spare word.
    sizes = (200, 500_000, 8, 8_000_000)
    lacking = 500_000 * 8 * (7 / 8) ** 200
    assert random_table_bits(*sizes).unused_answer_bits == pytest.approx(
        lacking * math.log2(4_000_001), rel=1e-3
    )
    assert random_table_bits(400, *sizes[1:]).unused_answer_bits == 0


@pytest.mark.parametrize("facts", [150, 1000, 10_000])
def test_table_of_two_answers_has_one_bit_per_fact(facts):
    grid = (np.arange(facts) % 2)[:, None]
    table = table_bits(FactTable(grid))
    assert table.bits == facts
    assert math.copysign(1, table.unused_answer_bits) == 1
    assert parameters_needed(table.bits)[1] == facts


def test_rejects_too_many_facts():
    with pytest.raises(FactmemError, match=r"at most 1e\+15, got 40000000000 facts"):
        random_table_bits(10, 4 * 10**9, 4 * 10**9, 16 * 10**18)


def test_conditions_of_the_theorem():
    conditions = RandomTableConditions.from_sizes(32, 32, 8, 512)
    assert conditions.vocabulary_needed == 512
    assert conditions.paper_bits == 3072 + 1536
    assert conditions.subjects_scale == pytest.approx(8 * math.log(128 * math.log(512)))
    assert RandomTableConditions.from_sizes(1, 1, 1, 1).subjects_scale == 0


def test_parameters_needed():
    assert parameters_needed(4745.1) == {1: 4746, 2: 2373, 4: 1187, 8: 594, 16: 297, 32: 149}


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)])
def test_rejects_sizes_below_1(sizes):
    with pytest.raises(FactmemError, match=r"must be at least 1, got 0"):
        random_table_bits(*sizes)


def test_rejects_too_small_vocabularies():
    with pytest.raises(FactmemError, match=r"vocabulary must be at least 8 .* got 7"):
        random_table_bits(3, 2, 4, 7)
    with pytest.raises(FactmemError, match=r"the table's 4 answers, got 3"):
        table_bits(FactTable(np.array([[0, 2], [1, 3]])), 3)
