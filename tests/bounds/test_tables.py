"""Theorem 8: entropies against all tables of small sizes, one by one."""

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
from factmem.bounds.tables import Conditions
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
    """Every way to give each relation a set of its own."""
    words = set(range(vocabulary))

    def rest(left, count):
        if count == 0:
            yield ()
            return
        for own in itertools.combinations(sorted(left), answers):
            for others in rest(left - set(own), count - 1):
                yield own, *others

    return list(rest(words, relations))


def table_chances(subjects, relations, answers, vocabulary):
    """The chance of every table, as a fraction."""
    sets = answer_sets(relations, answers, vocabulary)
    each = Fraction(1, len(sets) * answers ** (subjects * relations))
    chances = Counter()
    for those in sets:
        columns = [itertools.product(own, repeat=subjects) for own in those]
        for table in itertools.product(*columns):
            chances[table] += each
    return len(sets), chances


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_entropies_of_all_tables(sizes):
    sets, chances = table_chances(*sizes)
    assert sum(chances.values()) == 1
    entropy = -sum(float(p) * math.log2(p) for p in chances.values())
    found = random_table_bits(*sizes)
    assert found.bits == pytest.approx(entropy, abs=1e-9)
    assert found.answer_set_bits == pytest.approx(math.log2(sets), abs=1e-9)
    assert found.association_bits == pytest.approx(
        sizes[0] * sizes[1] * math.log2(sizes[2]), abs=1e-9
    )
    assert found.unseen_bits >= 0


def test_the_example_of_the_contract():
    found = random_table_bits(32, 32, 8, 512)
    assert found.association_bits == 3072
    assert found.answer_set_bits == pytest.approx(1701.6, abs=0.05)
    assert found.unseen_bits == pytest.approx(28.5, abs=0.05)
    assert found.bits == pytest.approx(4745.1, abs=0.05)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20), st.integers(0, 500))
def test_bits_lie_between_what_is_certain(subjects, relations, answers, spare):
    found = random_table_bits(subjects, relations, answers, relations * answers + spare)
    assert 0 <= found.unseen_bits <= found.answer_set_bits + 1e-9
    # Given the sets, the table is free; and it is one of |V|^SR tables.
    assert found.bits >= found.association_bits - 1e-9
    most = subjects * relations * math.log2(relations * answers + spare)
    assert found.bits <= most + 1e-9 * max(1.0, most)


def test_one_subject_is_a_list_of_different_words():
    found = random_table_bits(1, 10**12, 3, 10**13)
    # |V|! / (|V| − R)!, by Stirling's formula
    words, count = 1e13, 1e12
    nats = words * math.log(words) - (words - count) * math.log(words - count) - count
    assert found.bits == pytest.approx(nats / math.log(2), rel=1e-11)


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
    found = random_table_bits(*sizes)
    assert math.isfinite(found.bits)
    assert found.association_bits <= found.bits <= found.association_bits + found.answer_set_bits


@pytest.mark.parametrize("relations", [1, 7, 400])
def test_expansions_agree_with_distributions(monkeypatch, relations):
    sizes = (30_000, relations, 20_000, 20_000 * relations + 50)
    exact = random_table_bits(*sizes).unseen_bits
    monkeypatch.setattr("factmem.bounds.tables._WIDEST", 10.0)
    assert random_table_bits(*sizes).unseen_bits == pytest.approx(exact, rel=1e-6)
    monkeypatch.setattr("factmem.bounds.tables._WIDEST", 1e4)
    monkeypatch.setattr("factmem.bounds.tables._LONGEST_CONVOLUTION", 1)
    assert random_table_bits(*sizes).unseen_bits == pytest.approx(exact, rel=1e-6)


def shape_of(grid):
    """What `table_bits` keeps: how many answers each relation has, and whether all differ."""
    columns = [set(column) - {-1} for column in zip(*grid, strict=True)]
    disjoint = sum(map(len, columns)) == len(set().union(*columns))
    return tuple(map(len, columns)), disjoint


@pytest.mark.parametrize("vocabulary", [4, 5])
def test_bits_of_a_table_count_those_of_its_shape(vocabulary):
    grids = [
        np.reshape(answers, (3, 2)).tolist()
        for answers in itertools.product(range(vocabulary), repeat=6)
    ]
    shapes = Counter(map(shape_of, grids))
    sizes = Counter(shape for (shape, _) in map(shape_of, grids))
    for grid in grids[:: len(grids) // 97]:
        shape, disjoint = shape_of(grid)
        found = table_bits(FactTable(np.array(grid)), vocabulary)
        # Where answers are shared, sets are free: disjoint ones are among them.
        count = shapes[shape, True] if disjoint else sizes[shape]
        assert found.bits == pytest.approx(math.log2(count), abs=1e-9)


def test_open_questions_have_no_bits():
    grid = np.array([[0, -1], [1, 2], [-1, 3]])
    found = table_bits(FactTable(grid), 6)
    count = 6 * 5 // 2 * 2 * (4 * 3 // 2 * 2)  # two answers each, both seen
    assert found.bits == pytest.approx(math.log2(count), abs=1e-9)


def test_a_drawn_table_has_about_the_entropy_of_its_kind():
    bits = [table_bits(FactTable.random(32, 32, 8, seed=s), 512).bits for s in range(5)]
    assert np.mean(bits) == pytest.approx(random_table_bits(32, 32, 8, 512).bits, rel=0.01)


def test_answers_that_are_hardly_ever_unseen():
    # One relation in 200,000 lacks one answer, which is then one of the spare words.
    sizes = (200, 500_000, 8, 8_000_000)
    lacking = 500_000 * 8 * (7 / 8) ** 200
    assert random_table_bits(*sizes).unseen_bits == pytest.approx(
        lacking * math.log2(4_000_001), rel=1e-3
    )
    assert random_table_bits(400, *sizes[1:]).unseen_bits == 0


@pytest.mark.parametrize("facts", [150, 1000, 10_000])
def test_a_table_of_two_answers_has_a_bit_for_each_fact(facts):
    grid = (np.arange(facts) % 2)[:, None]
    found = table_bits(FactTable(grid))
    assert found.bits == facts
    assert math.copysign(1, found.unseen_bits) == 1
    assert parameters_needed(found.bits)[1] == facts


def test_more_than_can_be_counted():
    with pytest.raises(FactmemError, match=r"up to 1e\+15 facts"):
        random_table_bits(10, 4 * 10**9, 4 * 10**9, 16 * 10**18)


def test_the_printed_form():
    found = Conditions.of(32, 32, 8, 512)
    assert found.vocabulary_needed == 512
    assert found.printed_bits == 3072 + 1536
    assert found.subjects_scale == pytest.approx(8 * math.log(128 * math.log(512)))
    assert Conditions.of(1, 1, 1, 1).subjects_scale == 0


def test_parameters_hold_all_bits():
    found = parameters_needed(4745.1)
    assert found == {1: 4746, 2: 2373, 4: 1187, 8: 594, 16: 297, 32: 149}


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)])
def test_sizes_that_are_none(sizes):
    with pytest.raises(FactmemError, match=r"at least 1, not 0"):
        random_table_bits(*sizes)


def test_a_vocabulary_that_is_too_small():
    with pytest.raises(FactmemError, match=r"at least 8, not 7"):
        random_table_bits(3, 2, 4, 7)
    with pytest.raises(FactmemError, match=r"more than a vocabulary of 3"):
        table_bits(FactTable(np.array([[0, 2], [1, 3]])), 3)
