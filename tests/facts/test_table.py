"""Sizes, answers and information of fact tables."""

import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactTableError
from factmem.facts import MISSING, FactTable

names = st.text(min_size=1, max_size=6).filter(str.strip)
# Records, not tables: beartype checks random entries, which hypothesis forbids in strategies.
fact_lists = st.dictionaries(st.tuples(names, names), names, min_size=1, max_size=12).map(
    lambda answers: [(s, r, a) for (s, r), a in answers.items()]
)

CAPITALS = FactTable.from_records(
    [
        ("France", "capital", "Paris"),
        ("France", "continent", "Europe"),
        ("Italy", "capital", "Rome"),
        ("Italy", "continent", "Europe"),
        ("Japan", "capital", "Tokyo"),
        ("Japan", "continent", "Asia"),
        ("Peru", "capital", "Lima"),
    ]
)


def test_sizes_of_a_small_table():
    assert (CAPITALS.subjects, CAPITALS.relations, CAPITALS.answers) == (4, 2, 6)
    assert CAPITALS.facts == 7
    assert CAPITALS.answers_by_relation.tolist() == [4, 2]
    assert CAPITALS.answers_per_relation == 4
    assert CAPITALS.facts_by_relation.tolist() == [4, 3]
    assert CAPITALS.disjoint
    europe = CAPITALS.answer_names.index("Europe")
    assert CAPITALS.answer_counts[europe] == 2
    assert CAPITALS.answer_counts.sum() == 7


def test_bits_of_a_small_table():
    assert CAPITALS.association_bits == pytest.approx(4 * 2 + 3 * 1)
    continents = -2 * math.log2(2 / 3) - math.log2(1 / 3)
    assert CAPITALS.entropy_bits == pytest.approx(4 * 2 + continents)


def test_shared_answers_are_not_disjoint():
    shared = FactTable.from_records([("Goethe", "born in", "F"), ("Goethe", "lived in", "F")])
    assert not shared.disjoint
    assert any("share answers" in warning for warning in shared.warnings())


def test_random_tables_draw_from_answers_of_the_relation():
    table = FactTable.random(200, 5, 4, seed=3)
    assert table.answers == 20
    assert (table.answer_of // 4 == np.arange(5)).all()
    assert table.disjoint
    assert table.answers_per_relation == 4
    frequencies = np.bincount((table.answer_of % 4).ravel()) / 1000
    assert np.abs(frequencies - 0.25).max() < 0.05


def test_random_tables_depend_on_the_seed():
    assert FactTable.random(8, 8, 4, seed=1) == FactTable.random(8, 8, 4, seed=1)
    assert FactTable.random(8, 8, 4, seed=1) != FactTable.random(8, 8, 4, seed=2)


def test_structured_table_matches_figure_5():
    table = FactTable.structured(16, 4, 8)
    for s in range(16):
        for r in range(4):
            assert table.answer_of[s, r] == r * 8 + math.floor(s * 8 / 16)
    assert (table.answer_counts == 2).all()
    assert table.association_bits == table.entropy_bits == 16 * 4 * 3


def test_default_names_sort_numerically():
    table = FactTable.random(11, 2, 2)
    assert table.subject_names[10] == "subject 10"
    assert list(table.subject_names) == sorted(table.subject_names)


def test_order_of_records_does_not_matter():
    assert FactTable.from_records(reversed(list(CAPITALS.records()))) == CAPITALS
    assert hash(FactTable.from_records(list(CAPITALS.records()) * 2)) == hash(CAPITALS)


def test_missing_facts():
    assert CAPITALS.answer_of[CAPITALS.subject_names.index("Peru"), 1] == MISSING
    assert any("1 of 8 subject-relation pairs" in warning for warning in CAPITALS.warnings())


@given(fact_lists)
def test_records_and_counts_match_a_simple_implementation(records):
    table = FactTable.from_records(records)
    assert len(records) == table.facts
    assert set(records) == set(table.records())
    per_answer = Counter(answer for _, _, answer in records)
    assert dict(zip(table.answer_names, table.answer_counts, strict=True)) == per_answer
    bits = entropy = 0.0
    for relation in table.relation_names:
        answers = Counter(a for _, r, a in records if r == relation)
        total = sum(answers.values())
        bits += total * math.log2(len(answers))
        entropy -= sum(n * math.log2(n / total) for n in answers.values())
    assert table.association_bits == pytest.approx(bits)
    assert table.entropy_bits == pytest.approx(entropy, abs=1e-9)
    assert table.entropy_bits <= table.association_bits + 1e-9
    relations_of = {(r, a) for _, r, a in records}
    assert table.disjoint == (len(relations_of) == len({a for _, a in relations_of}))


def test_tables_are_immutable():
    grid = np.zeros((2, 2), dtype=int)
    table = FactTable(grid)
    grid[0, 0] = 1
    assert table.answer_of[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        table.answer_of[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        table.fact_ids[2][0] = 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FactTable(np.full((2, 2), MISSING)), "at least one fact"),
        (lambda: FactTable(np.zeros((0, 3), int)), "at least one fact"),
        (lambda: FactTable(np.zeros(3, int)), "array of integers"),
        (lambda: FactTable(np.zeros((2, 2))), "array of integers"),
        (lambda: FactTable(np.full((1, 1), -2)), "at least 0"),
        (
            lambda: FactTable(np.zeros((2, 1), int), ("a",)),
            "subject_names must have 2 entries, got 1",
        ),
        (lambda: FactTable(np.zeros((2, 1), int), ("a", "a")), "2 subjects have the same name 'a'"),
        (lambda: FactTable.from_records([]), "at least one fact"),
        (lambda: FactTable.from_records([("a", "b")]), "triple"),
        (lambda: FactTable.from_records(["abc"]), "triple"),
        (
            lambda: FactTable.from_records(iter([("a", "b", 3)])),
            "answer names must be text, got int",
        ),
        (lambda: FactTable.from_records([("a", " ", "c")]), "relation names must not be blank"),
        (
            lambda: FactTable.from_records([("a", "b", "\ud800")]),
            "answer name .* is not valid text",
        ),
        (
            lambda: FactTable.from_records([("a" * 100_001, "b", "c")]),
            "at most 100000 characters, got 100001",
        ),
        (lambda: FactTable.from_records([("a", "b", "c"), ("a", "b", "d")]), "two answers"),
        (lambda: FactTable.random(0, 1, 1), "subjects must be at least 1, got 0"),
        (lambda: FactTable.random(10**5, 10**5, 1), "at most 100000000, got 100000 × 100000"),
        (lambda: FactTable.random(1, 1, 1, seed=-1), "seed must be at least 0, got -1"),
        (lambda: FactTable.structured(1, 1, -1), "answers_per_relation must be at least 1, got -1"),
    ],
)
def test_invalid_tables_are_rejected(make, message):
    with pytest.raises(FactTableError, match=message):
        make()


def test_a_table_copies_its_grid_once():
    grid = np.full((20_000, 50), MISSING, np.int32)
    grid[:, 0] = np.arange(20_000) % 7
    tracemalloc.start()
    try:
        FactTable(grid)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.9 * grid.nbytes, "one copy and one mask"
