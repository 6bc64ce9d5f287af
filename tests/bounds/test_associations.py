"""Theorem 7 against linear programs, sums written out, and every code there is at small sizes."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from factmem._core.errors import FactmemError
from factmem.bounds import (
    Chances,
    Zipf,
    bits_for_loss,
    least_loss,
    printed_least_loss,
    scaling_law,
)

weights = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8)


def optimum_of_linear_program(bits, outputs, chances):
    """min Σ p (log2 M − I) over 0 ≤ I ≤ log2 M with Σ I ≤ B."""
    each = math.log2(outputs)
    ones = np.ones((1, len(chances)))
    found = linprog(-chances, A_ub=ones, b_ub=[bits], bounds=(0, each), method="highs")
    return each * chances.sum() + found.fun


@given(weights, st.integers(2, 40), st.floats(0, 40))
def test_the_bound_is_the_optimum_of_the_linear_program(given_weights, outputs, bits):
    chances = np.array(given_weights) / sum(given_weights)
    bound = least_loss(bits, outputs, Chances(chances))
    assert bound == pytest.approx(optimum_of_linear_program(bits, outputs, chances), abs=1e-9)


@pytest.mark.parametrize(("facts", "outputs", "bits"), [(2, 2, 1), (3, 2, 1), (2, 3, 1), (2, 2, 0)])
def test_no_code_of_so_many_bits_is_better(facts, outputs, bits):
    """Every map from tables to messages, each message with the best prediction for it."""
    chances = np.arange(facts, 0, -1) / sum(range(facts + 1))
    tables = list(itertools.product(range(outputs), repeat=facts))
    losses = []
    for code in itertools.product(range(2**bits), repeat=len(tables)):
        loss = 0.0
        for message in set(code):
            meant = np.array([t for t, m in zip(tables, code, strict=True) if m == message])
            for place, chance in enumerate(chances):
                shares = np.bincount(meant[:, place], minlength=outputs) / len(meant)
                shares = shares[shares > 0]
                loss -= len(meant) / len(tables) * chance * float(shares @ np.log2(shares))
        losses.append(loss)
    bound = least_loss(bits, outputs, Chances(chances))
    assert min(losses) >= bound - 1e-12
    if outputs == 2:  # whole bits are whole answers, and the bound is attained
        assert min(losses) == pytest.approx(bound, abs=1e-9)


@given(weights, st.integers(1, 40), st.floats(0, 40))
def test_the_printed_form_is_a_bound_too_and_no_better(given_weights, outputs, bits):
    law = Chances(np.array(given_weights) / sum(given_weights))
    assert printed_least_loss(bits, outputs, law) <= least_loss(bits, outputs, law) + 1e-12


def test_the_printed_form_rounds_answers_up():
    law = Chances(np.array([0.5, 0.3, 0.2]))
    assert printed_least_loss(3.5, 8, law) == pytest.approx(3 * 0.2)
    assert least_loss(3.5, 8, law) == pytest.approx(3 * (0.5 - 0.3 * 0.5 / 3))


def test_no_bits_know_nothing_and_all_bits_everything():
    law = Zipf(100, 1.3)
    assert least_loss(0, 32, law) == pytest.approx(5)
    assert least_loss(499.9, 32, law) > 0
    assert least_loss(500, 32, law) == 0
    assert least_loss(10, 1, law) == 0


@pytest.mark.parametrize("power", [0, 0.5, 1, 1.2, 2, 7.5, 50])
@pytest.mark.parametrize("count", [1, 2, 99_999, 100_000, 100_001, 300_000])
def test_tails_of_zipf_are_sums(power, count):
    chances = np.arange(1, count + 1, dtype=float) ** -power
    chances /= math.fsum(chances)
    for known in (0, 0.25, 1, count / 3, count - 0.5, count, count + 5):
        tail = Chances(chances).tail(known)
        assert Zipf(count, power).tail(known) == pytest.approx(tail, rel=1e-9, abs=1e-15)


def test_tails_of_very_many_questions():
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
def test_the_bits_for_a_loss_have_that_loss(given_weights, outputs, loss):
    law = Chances(np.array(given_weights) / sum(given_weights))
    bits = bits_for_loss(loss, outputs, law)
    assert least_loss(bits, outputs, law) == pytest.approx(min(loss, math.log2(outputs)), abs=1e-9)


def test_no_loss_takes_all_bits():
    assert bits_for_loss(0, 32, Zipf(10**6, 1.5)) == pytest.approx(5e6)
    assert bits_for_loss(5, 32, Zipf(10**6, 1.5)) == 0


def test_questions_that_are_never_asked_cost_nothing():
    law = Chances(np.array([0.5, 0.5, 0.0, 0.0]))
    assert bits_for_loss(0, 4, law) == 4
    assert bits_for_loss(0.5, 4, law) == 3


def test_the_law_near_the_power_one():
    for power in (1 + 1e-12, 1 + 2**-52):
        law = Zipf(10**15, power)
        assert scaling_law(1e6, 32, law) <= printed_least_loss(1e6, 32, law)


@pytest.mark.parametrize(("power", "count"), [(1.2, 10**12), (1.5, 10**9), (2, 10**9), (3, 10**9)])
def test_the_law_falls_with_the_exponent_one_minus_power(power, count):
    bits = np.geomspace(2**14, 2**17, 7)
    losses = [scaling_law(each, 32, Zipf(count, power)) for each in bits]
    slope = np.polyfit(np.log(bits), np.log(losses), 1)[0]
    assert slope == pytest.approx(1 - power, abs=0.02 if power > 1.3 else 0.03)


@given(st.floats(1.01, 4), st.integers(1, 10**6), st.integers(2, 100), st.floats(0, 1e5))
def test_the_law_is_below_the_printed_bound(power, count, outputs, bits):
    law = Zipf(count, power)
    assert scaling_law(bits, outputs, law) <= printed_least_loss(bits, outputs, law) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Zipf(0), r"questions, not 0"),
        (lambda: Zipf(5, -1), r"power of Zipf's law"),
        (lambda: Zipf(5, math.nan), r"power of Zipf's law"),
        (lambda: Chances(np.array([])), r"list of numbers"),
        (lambda: Chances(np.array([0.5, -0.5, 1.0])), r"list of numbers"),
        (lambda: Chances(np.array([0.5, 0.4])), r"sum to 1"),
        (lambda: least_loss(-1, 2, Zipf(5)), r"number of bits"),
        (lambda: least_loss(math.nan, 2, Zipf(5)), r"number of bits"),
        (lambda: least_loss(1, 0, Zipf(5)), r"at least one output"),
        (lambda: bits_for_loss(-1, 2, Zipf(5)), r"a loss is at least 0"),
        (lambda: scaling_law(5, 2, Zipf(5, 1)), r"a power above 1"),
    ],
)
def test_what_is_no_question(act, message):
    with pytest.raises(FactmemError, match=message):
        act()
