"""An ideal table: it can be read, and it attains the bound of Theorem 7."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.bounds import Chances, IdealTable, Zipf, least_loss


def mean_loss(facts, outputs, bits, chances):
    """The expected loss over all tables, by writing and reading each of them."""
    losses = []
    for target in itertools.product(range(outputs), repeat=facts):
        table = IdealTable.of(target, outputs, bits)
        assert 0 <= table.message < 2**bits
        possible = [table.possible(x) for x in range(facts)]
        assert all(answer in those for answer, those in zip(target, possible, strict=True))
        losses.append(float(chances @ [math.log2(len(those)) for those in possible]))
    return float(np.mean(losses))


@pytest.mark.parametrize("outputs", [2, 4, 8])
@pytest.mark.parametrize("bits", range(11))
def test_it_attains_the_bound_where_answers_are_whole_bits(outputs, bits):
    chances = np.array([0.5, 0.3, 0.2])
    assert mean_loss(3, outputs, bits, chances) == pytest.approx(
        least_loss(bits, outputs, Chances(chances)), abs=1e-9
    )


@pytest.mark.parametrize("outputs", [3, 5, 6])
@pytest.mark.parametrize("bits", range(9))
def test_it_is_less_than_an_answer_above_the_bound_elsewhere(outputs, bits):
    chances = np.array([0.5, 0.3, 0.2])
    bound = least_loss(bits, outputs, Chances(chances))
    assert -1e-12 <= mean_loss(3, outputs, bits, chances) - bound < 0.5 * math.log2(outputs)


@given(
    st.integers(1, 40).flatmap(
        lambda outputs: st.tuples(
            st.just(outputs), st.lists(st.integers(0, outputs - 1), max_size=30)
        )
    ),
    st.integers(0, 200),
)
def test_what_is_written_can_be_read(outputs_and_target, bits):
    outputs, target = outputs_and_target
    table = IdealTable.of(target, outputs, bits)
    assert table.message < 2**bits
    for question, answer in enumerate(target):
        assert answer in table.possible(question)
        assert len(table.possible(question)) == 1 or question >= table.known


def test_a_large_table_follows_zipf():
    law = Zipf(2000, 1.5)
    target = np.random.default_rng(0).integers(32, size=2000).tolist()
    table = IdealTable.of(target, 32, 1000)
    chances = np.arange(1, 2001.0) ** -1.5
    loss = sum(p * math.log2(len(table.possible(x))) for x, p in enumerate(chances / chances.sum()))
    assert loss == pytest.approx(least_loss(1000, 32, law), rel=1e-9)


@pytest.mark.parametrize(
    ("target", "outputs", "bits"), [([2], 2, 1), ([-1], 2, 1), ([0], 0, 1), ([0], 2, -1)]
)
def test_what_is_no_table(target, outputs, bits):
    with pytest.raises(FactmemError, match=r"answers are|from 0 to 100000000 bits"):
        IdealTable.of(target, outputs, bits)
