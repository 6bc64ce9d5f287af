"""The minimum loss, against linear programs, explicit sums, and all codes of small sizes."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from factmem._core.errors import FactmemError
from factmem.bounds import (
    QuestionProbabilities,
    Zipf,
    bits_for_loss,
    min_loss,
    paper_min_loss,
    scaling_law,
)

weights = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8)


def solve_linear_program(bits, outputs, probabilities):
    """Minimize Σ p (log2 M − I) over 0 ≤ I ≤ log2 M with Σ I ≤ B."""
    answer_bits = math.log2(outputs)
    ones = np.ones((1, len(probabilities)))
    solution = linprog(
        -probabilities, A_ub=ones, b_ub=[bits], bounds=(0, answer_bits), method="highs"
    )
    return answer_bits * probabilities.sum() + solution.fun


@given(weights, st.integers(2, 40), st.floats(0, 40))
def test_min_loss_solves_the_linear_program(given_weights, outputs, bits):
    probabilities = np.array(given_weights) / sum(given_weights)
    bound = min_loss(bits, outputs, QuestionProbabilities(probabilities))
    assert bound == pytest.approx(solve_linear_program(bits, outputs, probabilities), abs=1e-9)


@pytest.mark.parametrize(("facts", "outputs", "bits"), [(2, 2, 1), (3, 2, 1), (2, 3, 1), (2, 2, 0)])
def test_no_code_beats_the_bound(facts, outputs, bits):
    """Over all maps from tables to messages, with the best prediction for each message."""
    probabilities = np.arange(facts, 0, -1) / sum(range(facts + 1))
    tables = list(itertools.product(range(outputs), repeat=facts))
    losses = []
    for code in itertools.product(range(2**bits), repeat=len(tables)):
        loss = 0.0
        for message in set(code):
            encoded = np.array([t for t, m in zip(tables, code, strict=True) if m == message])
            for index, probability in enumerate(probabilities):
                p = np.bincount(encoded[:, index], minlength=outputs) / len(encoded)
                p = p[p > 0]
                loss -= len(encoded) / len(tables) * probability * float(p @ np.log2(p))
        losses.append(loss)
    bound = min_loss(bits, outputs, QuestionProbabilities(probabilities))
    assert min(losses) >= bound - 1e-12
    if outputs == 2:  # an answer is a whole bit, and the bound is attained
        assert min(losses) == pytest.approx(bound, abs=1e-9)


@given(weights, st.integers(1, 40), st.floats(0, 40))
def test_printed_bound_is_at_most_the_exact_one(given_weights, outputs, bits):
    law = QuestionProbabilities(np.array(given_weights) / sum(given_weights))
    assert paper_min_loss(bits, outputs, law) <= min_loss(bits, outputs, law) + 1e-12


def test_printed_bound_rounds_questions_up():
    law = QuestionProbabilities(np.array([0.5, 0.3, 0.2]))
    assert paper_min_loss(3.5, 8, law) == pytest.approx(3 * 0.2)
    assert min_loss(3.5, 8, law) == pytest.approx(3 * (0.5 - 0.3 * 0.5 / 3))


def test_min_loss_of_no_bits_and_of_all_bits():
    law = Zipf(100, 1.3)
    assert min_loss(0, 32, law) == pytest.approx(5)
    assert min_loss(499.9, 32, law) > 0
    assert min_loss(500, 32, law) == 0
    assert min_loss(10, 1, law) == 0


@pytest.mark.parametrize("power", [0, 0.5, 1, 1.2, 2, 7.5, 50])
@pytest.mark.parametrize("count", [1, 2, 99_999, 100_000, 100_001, 300_000])
def test_zipf_tails_match_explicit_sums(power, count):
    probabilities = np.arange(1, count + 1, dtype=float) ** -power
    probabilities /= math.fsum(probabilities)
    for known in (0, 0.25, 1, count / 3, count - 0.5, count, count + 5):
        tail = QuestionProbabilities(probabilities).tail(known)
        assert Zipf(count, power).tail(known) == pytest.approx(tail, rel=1e-9, abs=1e-15)


def test_zipf_tails_of_very_many_questions():
    # Σ x^−2 = π²/6, and the tail after k is near 1/k.
    law = Zipf(10**12, 2)
    assert law.tail(10**6) == pytest.approx((1e-6 - 0.5e-12 - 1e-12) / (math.pi**2 / 6), rel=1e-6)
    assert Zipf(10**12).tail(10**11) == pytest.approx(0.9, rel=1e-12)
    assert Zipf(10**12).tail(10**12 - 10) == pytest.approx(1e-11, rel=1e-9)
    assert Zipf(10**18).tail(10**18 - 10**6) == pytest.approx(1e-12, rel=1e-9)
    euler = 0.5772156649015329
    harmonic = math.log(1e12) + euler
    assert Zipf(10**12, 1).tail(10**6) == pytest.approx(math.log(1e6) / harmonic, rel=1e-6)


@given(weights, st.integers(2, 40), st.floats(0, 6))
def test_bits_for_loss_inverts_min_loss(given_weights, outputs, loss):
    law = QuestionProbabilities(np.array(given_weights) / sum(given_weights))
    bits = bits_for_loss(loss, outputs, law)
    assert min_loss(bits, outputs, law) == pytest.approx(min(loss, math.log2(outputs)), abs=1e-9)


def test_zero_loss_takes_all_bits():
    assert bits_for_loss(0, 32, Zipf(10**6, 1.5)) == pytest.approx(5e6)
    assert bits_for_loss(5, 32, Zipf(10**6, 1.5)) == 0


def test_questions_of_probability_0_need_no_bits():
    law = QuestionProbabilities(np.array([0.5, 0.5, 0.0, 0.0]))
    assert bits_for_loss(0, 4, law) == 4
    assert bits_for_loss(0.5, 4, law) == 3


def test_scaling_law_near_power_1():
    for power in (1 + 1e-12, 1 + 2**-52):
        law = Zipf(10**15, power)
        assert scaling_law(1e6, 32, law) <= paper_min_loss(1e6, 32, law)


@pytest.mark.parametrize(("power", "count"), [(1.2, 10**12), (1.5, 10**9), (2, 10**9), (3, 10**9)])
def test_scaling_law_has_exponent_one_minus_power(power, count):
    bits = np.geomspace(2**14, 2**17, 7)
    losses = [scaling_law(b, 32, Zipf(count, power)) for b in bits]
    slope = np.polyfit(np.log(bits), np.log(losses), 1)[0]
    assert slope == pytest.approx(1 - power, abs=0.02 if power > 1.3 else 0.03)


@given(st.floats(1.01, 4), st.integers(1, 10**6), st.integers(2, 100), st.floats(0, 1e5))
def test_scaling_law_is_below_the_printed_bound(power, count, outputs, bits):
    law = Zipf(count, power)
    assert scaling_law(bits, outputs, law) <= paper_min_loss(bits, outputs, law) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Zipf(0), r"count must be between 1 and 10\^18, got 0"),
        (lambda: Zipf(5, -1), r"power must be between 0 and 1000, got -1"),
        (lambda: Zipf(5, math.nan), r"power must be between 0 and 1000, got nan"),
        (
            lambda: QuestionProbabilities(np.array([])),
            r"must be a non-empty 1-d array of numbers ≥ 0, got an array of shape \(0,\)",
        ),
        (
            lambda: QuestionProbabilities(np.array([0.5, -0.5, 1.0])),
            r"must be a non-empty 1-d array of numbers ≥ 0, got .* shape \(3,\) with minimum -0.5",
        ),
        (lambda: QuestionProbabilities(np.array([0.5, 0.4])), r"sum to 1"),
        (lambda: min_loss(-1, 2, Zipf(5)), r"bits must be finite and at least 0"),
        (lambda: min_loss(math.nan, 2, Zipf(5)), r"bits must be finite and at least 0"),
        (lambda: min_loss(1, 0, Zipf(5)), r"outputs must be at least 1, got 0"),
        (lambda: bits_for_loss(-1, 2, Zipf(5)), r"loss must be at least 0, got -1"),
        (lambda: scaling_law(5, 2, Zipf(5, 1)), r"a power above 1"),
    ],
)
def test_rejects_invalid_arguments(call, message):
    with pytest.raises(FactmemError, match=message):
        call()
