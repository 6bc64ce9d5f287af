"""The ideal table: decoding, and its loss against the bound of Theorem 7."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.bounds import IdealTable, QuestionProbabilities, Zipf, min_loss


def mean_loss(facts, outputs, bits, probabilities):
    """Compute the expected loss by encoding and decoding all tables."""
    losses = []
    for target in itertools.product(range(outputs), repeat=facts):
        table = IdealTable.encode(target, outputs, bits)
        assert 0 <= table.message < 2**bits
        possible = [table.possible_answers(x) for x in range(facts)]
        assert all(answer in answers for answer, answers in zip(target, possible, strict=True))
        losses.append(float(probabilities @ [math.log2(len(answers)) for answers in possible]))
    return float(np.mean(losses))


@pytest.mark.parametrize("outputs", [2, 4, 8])
@pytest.mark.parametrize("bits", range(11))
def test_attains_the_bound_for_powers_of_two(outputs, bits):
    probabilities = np.array([0.5, 0.3, 0.2])
    assert mean_loss(3, outputs, bits, probabilities) == pytest.approx(
        min_loss(bits, outputs, QuestionProbabilities(probabilities)), abs=1e-9
    )


@pytest.mark.parametrize("outputs", [3, 5, 6])
@pytest.mark.parametrize("bits", range(9))
def test_is_less_than_an_answer_above_the_bound_otherwise(outputs, bits):
    probabilities = np.array([0.5, 0.3, 0.2])
    bound = min_loss(bits, outputs, QuestionProbabilities(probabilities))
    assert -1e-12 <= mean_loss(3, outputs, bits, probabilities) - bound < 0.5 * math.log2(outputs)


@given(
    st.integers(1, 40).flatmap(
        lambda outputs: st.tuples(
            st.just(outputs), st.lists(st.integers(0, outputs - 1), max_size=30)
        )
    ),
    st.integers(0, 200),
)
def test_decodes_what_was_encoded(outputs_and_target, bits):
    outputs, target = outputs_and_target
    table = IdealTable.encode(target, outputs, bits)
    assert table.message < 2**bits
    for question, answer in enumerate(target):
        assert answer in table.possible_answers(question)
        assert len(table.possible_answers(question)) == 1 or question >= table.known


def test_large_table_attains_the_bound_for_zipf_questions():
    law = Zipf(2000, 1.5)
    target = np.random.default_rng(0).integers(32, size=2000).tolist()
    table = IdealTable.encode(target, 32, 1000)
    probabilities = np.arange(1, 2001.0) ** -1.5
    loss = sum(
        p * math.log2(len(table.possible_answers(x)))
        for x, p in enumerate(probabilities / probabilities.sum())
    )
    assert loss == pytest.approx(min_loss(1000, 32, law), rel=1e-9)


@pytest.mark.parametrize(
    ("target", "outputs", "bits"), [([2], 2, 1), ([-1], 2, 1), ([0], 0, 1), ([0], 2, -1)]
)
def test_rejects_invalid_arguments(target, outputs, bits):
    with pytest.raises(FactmemError, match=r"(answers|outputs|bits) must be"):
        IdealTable.encode(target, outputs, bits)
