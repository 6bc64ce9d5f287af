"""Protocols: the paper's numbers, and what makes none."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factmem._core.errors import FactmemError
from factmem.training import BEST, PAPER, QUICK, Protocol


def test_the_papers_protocol_is_that_of_figure_4():
    assert PAPER.learning_rates == (1e-3, 3e-3, 1e-2)
    assert (PAPER.steps, PAPER.batch, PAPER.checks, PAPER.prompts) == (2**14, 1024, 128, 1024)
    assert (PAPER.optimizer, PAPER.schedule, PAPER.criterion) == ("adam", "constant", 0.99)
    assert (PAPER.momentum, PAPER.memory) == (0.9, 0.999)


def test_the_best_protocol_draws_no_more_prompts_and_has_the_same_criterion():
    def prompts(protocol):
        return len(protocol.learning_rates) * protocol.steps * protocol.batch

    assert prompts(BEST) <= prompts(PAPER)
    assert (BEST.criterion, BEST.prompts, BEST.checks) == (0.99, 1024, 128)


@given(st.integers(1, 10_000), st.data())
def test_checks_are_evenly_spaced_from_start_to_end(steps, data):
    checks = data.draw(st.integers(1, min(steps, 300)))
    protocol = Protocol((0.1,), steps=steps, checks=checks)
    found = [protocol.steps_at(check) for check in range(checks + 1)]
    assert (found[0], found[-1]) == (0, steps)
    between = {later - earlier for earlier, later in pairwise(found)}
    assert between <= {steps // checks, steps // checks + 1}
    assert min(between) > 0


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"learning_rates": ()}, "at least one learning rate"),
        ({"learning_rates": (0.1, 0.0)}, "positive, not 0.0"),
        ({"learning_rates": (float("nan"),)}, "positive, not nan"),
        ({"learning_rates": (float("inf"),)}, "positive, not inf"),
        ({"steps": 0}, "0 steps cannot be checked 128 times"),
        ({"steps": 100}, "100 steps cannot be checked 128 times"),
        ({"steps": 2**30 + 1}, "at most 1073741824 steps"),
        ({"batch": 0}, "at least one prompt"),
        ({"prompts": 0}, "at least one prompt"),
        ({"momentum": 1.0}, "less than 1"),
        ({"memory": -0.1}, "at least 0"),
        ({"criterion": 1.0}, "between 0 and 1"),
        ({"hopeless": ((0.0, 0.5),)}, "hopeless are shares"),
        ({"hopeless": ((0.5, 1.0),)}, "hopeless are shares"),
        ({"hopeless": ((0.5, 0.5), (1.0, 0.5))}, "hopeless are shares"),
    ],
)
def test_what_makes_no_protocol(numbers, message):
    with pytest.raises(FactmemError, match=message):
        Protocol(**({"learning_rates": (0.1,)} | numbers))


def test_the_best_protocol_is_the_one_that_was_measured():
    """Its figures in docs/training.md hold for these numbers and no others."""
    numbers = (0.05,), 2**15, 1024, True, "muon", "cosine", 0.95, 0.99, 128, 1024, 0.99
    assert Protocol(*numbers) == BEST


def test_the_quick_protocol_is_the_best_one_on_a_sixteenth_of_its_prompts():
    assert replace(QUICK, steps=BEST.steps, batch=BEST.batch, hopeless=()) == BEST
    assert 16 * QUICK.steps * QUICK.batch == BEST.steps * BEST.batch


def test_a_recipe_has_what_is_compiled():
    protocol = Protocol((0.1,), batch=7, evenly=True, optimizer="muon", schedule="cosine")
    assert protocol.recipe == ("muon", "cosine", 7, True)


def test_the_protocols_themselves_end_nothing_early():
    assert PAPER.hopeless == BEST.hopeless == ()
    assert not PAPER.is_hopeless(2**14, 0.0)


def test_what_is_hopeless():
    protocol = Protocol((0.1,), steps=200, checks=100, hopeless=((0.25, 0.5), (0.5, 0.9)))
    assert not protocol.is_hopeless(49, 0.0)
    assert protocol.is_hopeless(50, 0.49)
    assert not protocol.is_hopeless(50, 0.5)
    assert not protocol.is_hopeless(99, 0.6)
    assert protocol.is_hopeless(100, 0.89)
    assert not protocol.is_hopeless(200, 0.9)
